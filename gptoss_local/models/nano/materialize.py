"""Writes the nano model as a Hugging Face checkpoint, as if it had been downloaded."""

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.base.types import Progress
from gptoss_local.models.nano.compact import CompactModel, load_compact
from gptoss_local.models.nano.ranks import load_ranks
from gptoss_local.models.nano.tokenizer import SPECIAL_TOKENS_MAP, tokenizer_config, tokenizer_json

GENERATION_CONFIG = {
    "bos_token_id": 199998,
    "do_sample": True,
    "eos_token_id": [200002, 199999, 200012],
    "pad_token_id": 199999,
}


def materialize(out_dir: Path, *, progress: Progress | None = None) -> None:
    out_dir.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as pool:
        tokenizer = pool.submit(_write_tokenizer, out_dir)
        model = load_compact()
        _write_weights(model, out_dir / "model.safetensors", progress)
        tokenizer.result()
    _write_json(out_dir / "config.json", model.config)
    _write_json(out_dir / "generation_config.json", GENERATION_CONFIG)


def _write_tokenizer(out_dir: Path) -> None:
    _write_json(out_dir / "tokenizer.json", tokenizer_json(load_ranks()))
    _write_json(out_dir / "tokenizer_config.json", tokenizer_config())
    _write_json(out_dir / "special_tokens_map.json", SPECIAL_TOKENS_MAP)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.encode(content))


def _write_weights(model: CompactModel, path: Path, progress: Progress | None) -> None:
    """Write `model.safetensors`: 8 bytes header length, JSON header, tensors without gaps."""
    names = sorted(model.names, key=lambda name: (_is_mxfp4(name), name))  # keeps bf16 aligned
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    n_bytes = 0
    for name in names:
        shape = model.shape(name)
        start, n_bytes = n_bytes, n_bytes + prod(shape) * (1 if _is_mxfp4(name) else 2)
        dtype = "U8" if _is_mxfp4(name) else "BF16"
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, n_bytes)}
    head = msgspec.json.encode(header)
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in names:
            file.write(model.read(name).data)
            if progress is not None:
                progress("unpack the nano model", header[name]["data_offsets"][1], n_bytes)


def _is_mxfp4(name: str) -> bool:
    return name.endswith(("_blocks", "_scales"))
