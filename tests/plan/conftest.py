"""Models of real sizes that take no room on the disk."""

from pathlib import Path

import pytest

from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from tests.plan.shapes import write_sparse_gguf


@pytest.fixture(scope="session")
def real_sizes(tmp_path_factory: pytest.TempPathFactory, nano_checkpoint: Path) -> dict[str, Path]:
    """GGUFs of 20b's and 120b's shapes."""
    folder = tmp_path_factory.mktemp("sizes")
    return {size: write_sparse_gguf(size, folder, nano_checkpoint) for size in ("20b", "120b")}


@pytest.fixture(scope="session")
def facts(real_sizes: dict[str, Path]) -> dict[str, ModelFacts]:
    return {size: read_facts(path) for size, path in real_sizes.items()}
