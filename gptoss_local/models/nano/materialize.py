"""Writes the nano model as a Hugging Face checkpoint, as if it had been downloaded."""

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.base.formats.o200k import CHAR_OF_BYTE, SPECIAL_TOKENS, SPLIT_REGEX, derive_merges
from gptoss_local.base.types import Progress
from gptoss_local.models.nano.compact import CompactModel, load_compact
from gptoss_local.models.nano.ranks import load_ranks

SPECIAL_TOKENS_MAP = {
    "bos_token": "<|startoftext|>",
    "eos_token": "<|return|>",
    "pad_token": "<|endoftext|>",
}


def tokenizer_json(tokens: list[bytes]) -> dict[str, Any]:
    vocab = {t.decode("latin-1").translate(CHAR_OF_BYTE): rank for rank, t in enumerate(tokens)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    pre_tokenizers = [
        {
            "type": "Split",
            "pattern": {"Regex": SPLIT_REGEX},
            "behavior": "Isolated",
            "invert": False,
        },
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **_added_token(text)} for i, text in SPECIAL_TOKENS.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": {**byte_level, "trim_offsets": False},
        "decoder": {**byte_level, "trim_offsets": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": derive_merges(vocab),
        },
    }


def tokenizer_config() -> dict[str, Any]:
    return {
        "added_tokens_decoder": {str(i): _added_token(t) for i, t in SPECIAL_TOKENS.items()},
        **SPECIAL_TOKENS_MAP,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 131072,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def _added_token(text: str) -> dict[str, Any]:
    return {
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


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
