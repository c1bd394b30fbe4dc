"""The GGUF equals, key by key and byte by byte, what llama.cpp's own converter writes.

golden_llama_cpp.json was made from its output by make_golden.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from convert import convert_checkpoint
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.make_golden import GOLDEN, describe


@pytest.mark.parametrize("dense", ["bf16", "q8_0"])
def test_same_keys_and_tensors(dense: str, request: pytest.FixtureRequest) -> None:
    converted = describe(request.getfixturevalue(f"{dense}_file"))
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())[dense]
    # A deliberate difference: the experts name the file's type, whatever the other weights are.
    golden["keys"]["general.file_type"] = ["UINT32", 38]
    assert converted["keys"] == golden["keys"]
    assert converted["tensors"] == golden["tensors"]


def test_scalars_come_before_the_vocabulary(q8_0_file: GgufFile) -> None:
    """A reader that wants a number need not skip 12 MB of tokens."""
    keys = list(q8_0_file.keys)
    is_array = [key.endswith((".tokens", ".token_type", ".merges")) for key in keys]
    assert is_array == [False] * (len(keys) - 3) + [True] * 3


def test_our_reader_agrees_with_gguf(tiny_checkpoint: Path, tmp_path: Path) -> None:
    convert_checkpoint(tiny_checkpoint, tmp_path / "tiny.gguf")
    ours, theirs = read_gguf(tmp_path / "tiny.gguf"), GGUFReader(tmp_path / "tiny.gguf")
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert {key: value for key, (_, value) in ours.keys.items()} == fields
    for tensor in theirs.tensors:
        assert tensor.data.tobytes() == ours.tensors[tensor.name].data.tobytes()
