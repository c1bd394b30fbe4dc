"""Writes golden_llama_cpp.json, from nano as llama.cpp's own converter writes it.

Run once per llama.cpp version, with its convert_hf_to_gguf.py on a materialized nano checkpoint:

    python convert_hf_to_gguf.py gpt-oss-nano --outtype bf16 --outfile bf16.gguf
    python convert_hf_to_gguf.py gpt-oss-nano --outtype q8_0 --outfile q8_0.gguf
    python -m tests.convert.make_golden bf16.gguf q8_0.gguf
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.convert.gguf_file import GgufFile, read_gguf

GOLDEN = Path(__file__).with_name("golden_llama_cpp.json")


def describe(file: GgufFile) -> dict[str, Any]:
    """Keys with their types, and tensors with type, shape and a hash of their bytes."""
    keys: dict[str, Any] = {}
    for key, (kind, value) in file.keys.items():
        if isinstance(value, list):
            value = f"{len(value)} items, sha256 {sha256(json.dumps(value).encode()).hexdigest()}"
        keys[key] = [kind, value]
    tensors = {
        name: [tensor.qtype.name, list(tensor.shape), sha256(tensor.data.data).hexdigest()]
        for name, tensor in file.tensors.items()
    }
    return {"keys": dict(sorted(keys.items())), "tensors": dict(sorted(tensors.items()))}


if __name__ == "__main__":
    bf16, q8_0 = map(Path, sys.argv[1:])
    golden = {"bf16": describe(read_gguf(bf16)), "q8_0": describe(read_gguf(q8_0))}
    GOLDEN.write_text(json.dumps(golden, indent=0) + "\n")
