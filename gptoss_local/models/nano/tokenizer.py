"""The Hugging Face tokenizer files of gpt-oss, with merges derived from the o200k_base tokens."""

from typing import Any

from gptoss_local.base.formats.o200k import CHAR_OF_BYTE, SPECIAL_TOKENS, SPLIT_REGEX, derive_merges

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
        {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        },
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
