"""The GGUF equals llama.cpp's own conversion, key by key and byte by byte.

golden_llama_cpp.json was made from its output by make_golden.py.
"""

import json
from typing import Any

import numpy as np
import pytest

from convert.plan import SUMS_KEY, SUMS_OF_KEY
from tests.convert.gguf_file import GgufFile
from tests.convert.make_golden import GOLDEN, describe


@pytest.mark.parametrize("dense", ["bf16", "q8_0"])
def test_same_keys_and_tensors(dense: str, request: pytest.FixtureRequest) -> None:
    converted = describe(request.getfixturevalue(f"{dense}_file"))
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())[dense]
    # A deliberate difference: the experts name the file's type, whatever the other weights are.
    golden["keys"]["general.file_type"] = ["UINT32", 38]
    assert converted["keys"].pop(SUMS_KEY)[0] == "ARRAY/UINT64"  # one that only we write
    assert converted["keys"].pop(SUMS_OF_KEY)[0] == "STRING"
    assert converted["keys"] == golden["keys"]
    assert converted["tensors"] == golden["tensors"]


def test_scalars_come_before_the_vocabulary(q8_0_file: GgufFile) -> None:
    """A reader that wants a number need not skip 12 MB of tokens."""
    keys = [key for key in q8_0_file.keys if key != SUMS_OF_KEY]  # of the file, as the sums are
    is_array = [key.endswith((".tokens", ".token_type", ".merges", "_sums")) for key in keys]
    assert is_array == [False] * (len(keys) - 4) + [True] * 4


def test_tensor_sums(q8_0_file: GgufFile) -> None:
    """Each is the sum of the tensor's 64-bit words, here taken in halves that cannot overflow."""
    _, sums = q8_0_file.keys[SUMS_KEY]
    assert len(sums) == len(q8_0_file.tensors)
    for value, tensor in zip(sums, q8_0_file.tensors.values(), strict=True):
        data = tensor.data.tobytes()
        words = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), "<u4")
        low, high = (int(words[i::2].sum(dtype=np.uint64)) for i in (0, 1))
        assert value == (low + (high << 32)) % 2**64
