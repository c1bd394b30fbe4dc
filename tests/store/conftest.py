"""A store of its own, and models of a few kilobytes, checked in a fraction of nano's time."""

from pathlib import Path

import pytest

from convert import convert_checkpoint
from gptoss_local.base.settings import Settings
from tests.convert.tiny import write_tiny


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return convert_checkpoint(write_tiny(folder / "tiny"), folder / "tiny.gguf")[0]


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model in several files."""
    folder = tmp_path_factory.mktemp("parts")
    source = write_tiny(folder / "tiny")
    found = convert_checkpoint(source, folder / "tune.gguf", max_shard_bytes=20_000)
    assert len(found) > 1
    return found
