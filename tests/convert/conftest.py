"""Checkpoints to convert: the real nano model, a tiny one that tests may break, and a large one."""

from pathlib import Path

import pytest

from convert import convert_checkpoint
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.large import MEDIUM, sha256, write_large
from tests.convert.tiny import write_tiny


@pytest.fixture(scope="session")
def bf16_gguf(nano_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("gguf") / "bf16.gguf"
    convert_checkpoint(nano_checkpoint, target, dense="bf16")
    return target


@pytest.fixture(scope="session")
def q8_0_gguf(nano_gguf: Path) -> Path:
    """nano's model file, which is a conversion without options; do not write into it."""
    return nano_gguf


@pytest.fixture(scope="session")
def bf16_file(bf16_gguf: Path) -> GgufFile:
    return read_gguf(bf16_gguf)


@pytest.fixture(scope="session")
def q8_0_file(q8_0_gguf: Path) -> GgufFile:
    return read_gguf(q8_0_gguf)


@pytest.fixture
def tiny_checkpoint(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 90 MB in four shards."""
    folder = tmp_path_factory.mktemp("large") / "large"
    return write_large(folder, MEDIUM | {"hidden_size": 512})


@pytest.fixture(scope="session")
def large_sha256(large: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the GGUF that is made of it without interruption."""
    target = tmp_path_factory.mktemp("whole") / "whole.gguf"
    convert_checkpoint(large, target)
    return sha256(target)


@pytest.fixture
def sync_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convert.run.SYNC_S", 0.01)
