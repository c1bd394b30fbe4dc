"""A model of a few kilobytes, which is checked in a fraction of nano's time."""

from pathlib import Path

import pytest

from convert import convert_checkpoint
from tests.convert.tiny import write_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return convert_checkpoint(write_tiny(folder / "tiny"), folder / "tiny.gguf")[0]
