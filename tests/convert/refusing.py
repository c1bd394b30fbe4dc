"""A broken checkpoint must be refused, and nothing be left behind."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from convert import convert_checkpoint
from gptoss_local.base.errors import ConvertError


def refuse(folder: Path, match: str, **options: Any) -> None:
    """Convert over an existing file: it must be refused and leave that file alone."""
    target_dir = folder.parent / "out"
    target_dir.mkdir()
    target = target_dir / "model.gguf"
    target.write_bytes(b"GGUF, the old one")
    with pytest.raises(ConvertError, match=match):
        convert_checkpoint(folder, target, **options)
    assert target.read_bytes() == b"GGUF, the old one"
    assert list(target_dir.iterdir()) == [target]


def header_of(data: bytes) -> dict[str, Any]:
    header: dict[str, Any] = msgspec.json.decode(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header
