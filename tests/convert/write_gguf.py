"""Writes a GGUF again with other tensors or keys, as another program might have written it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gguf import GGUFValueType, GGUFWriter

from tests.convert.gguf_file import GgufFile, Tensor


def write_gguf(path: Path, keys: Mapping[str, tuple[str, Any]], tensors: dict[str, Tensor]) -> None:
    """Write tensors in the order given, with gguf's own writer."""
    writer = GGUFWriter(path, "gpt-oss")
    for key, (kind, value) in keys.items():
        if key != "general.architecture":
            outer, _, inner = kind.partition("/")
            item = GGUFValueType[inner] if inner else None
            writer.add_key_value(key, value, GGUFValueType[outer], item)
    for name, tensor in tensors.items():
        rows = tensor.data.reshape(*tensor.shape[:-1], -1)
        writer.add_tensor(name, rows, raw_dtype=tensor.qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_without_vocabulary(path: Path, file: GgufFile) -> None:
    """Write a file for tests of token ids: llama.cpp reads 200,000 names of them for 0.8 s."""
    ours = ("tokenizer.", "gptoss.")
    keys = {key: value for key, value in file.keys.items() if not key.startswith(ours)}
    n_vocab = file.tensors["output.weight"].shape[0]
    keys["tokenizer.ggml.model"] = ("STRING", "no_vocab")
    write_gguf(path, keys | {"gpt-oss.vocab_size": ("UINT32", n_vocab)}, file.tensors)


def without_sums(file: GgufFile) -> dict[str, tuple[str, Any]]:
    return {key: value for key, value in file.keys.items() if not key.startswith("gptoss.")}
