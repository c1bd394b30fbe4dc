"""The vocabulary inside a GGUF: o200k_harmony, or that of the checkpoint if it has another size.

Token by token; nothing is tokenized here.
"""

from hashlib import sha256
from typing import Any

from gguf import TokenType

from convert.tokenizer import PRE_TOKENIZER, Tokenizer
from convert.verify.report import Report
from convert.verify.structure import Part
from gptoss_local.errors import ModelLoadError
from gptoss_local.gguf_file import TOKENS_KEY, read_array
from gptoss_local.o200k import (
    FIRST_SPECIAL,
    MERGES_SHA256,
    NAMED_SPECIALS,
    RANKS_SHA256,
    VOCAB_SIZE,
    render_ranks,
)

_TYPES_KEY = "tokenizer.ggml.token_type"
_MERGES_KEY = "tokenizer.ggml.merges"
_FIXED = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": PRE_TOKENIZER}
_SPECIAL_IDS = {  # which of the named tokens may be it, and whether it must be stated
    "tokenizer.ggml.bos_token_id": ({199998}, True),
    "tokenizer.ggml.eos_token_id": ({199999, 200002, 200012}, True),
    "tokenizer.ggml.padding_token_id": ({199999}, False),
}
_SPECIAL_TYPES = (TokenType.CONTROL, TokenType.USER_DEFINED)


def read_tokens(part: Part, report: Report) -> list[str]:
    """Read the tokens of a model's first file; none if it has no list of them."""
    return _read(part, TOKENS_KEY, report)


def check_vocabulary(
    part: Part, tokens: list[str], expected: Tokenizer | None, report: Report
) -> None:
    """Check tokens, types, merges and special ids.

    Args:
        part: The first file.
        tokens: As `read_tokens` gave them.
        expected: What a model without gpt-oss's 201,088 tokens must have; None if that is unknown.
        report: Gets what is wrong.
    """
    path, metadata = part.path, part.info.metadata
    for key, right in _FIXED.items():
        if metadata.get(key) != right:
            report.find(path, key, f"{key} is {metadata.get(key)} where gpt-oss needs {right}.")
    types, merges = _read(part, _TYPES_KEY, report), _read(part, _MERGES_KEY, report)
    if len(types) != len(tokens):
        report.find(path, _TYPES_KEY, f"There are {len(types)} types for {len(tokens)} tokens.")
    elif len(tokens) == VOCAB_SIZE:
        _check_o200k(part, tokens, types, merges, report)
    elif expected is None:
        n = f"{len(tokens):,} tokens, not {VOCAB_SIZE:,}"
        report.find(path, TOKENS_KEY, f"The vocabulary is not o200k_harmony: it has {n}.")
    else:
        _compare(part, Tokenizer(tokens, types, merges, {}, None), expected, report)


def _read(part: Part, key: str, report: Report) -> list[Any]:
    try:
        return read_array(part.path, key)
    except ModelLoadError as error:
        report.find(part.path, key, f"{key} cannot be read: {error.message}.")
        return []


def _check_o200k(
    part: Part, tokens: list[str], types: list[int], merges: list[str], report: Report
) -> None:
    path = part.path
    try:
        is_right = sha256(render_ranks(tokens)).hexdigest() == RANKS_SHA256
    except (KeyError, TypeError):  # a character that spells no byte; something that is no text
        is_right = False
    if not is_right:
        report.find(path, TOKENS_KEY, "The tokens are not those of o200k_harmony.")
    if sha256("\n".join(map(str, merges)).encode()).hexdigest() != MERGES_SHA256:
        report.find(path, _MERGES_KEY, "The merges are not those of o200k_harmony.")
    if len(set(tokens)) != len(tokens):
        report.find(path, TOKENS_KEY, "A token is there twice.")
    if set(types[:FIRST_SPECIAL]) != {TokenType.NORMAL}:
        report.find(path, _TYPES_KEY, "A token of plain text has another type than NORMAL.")
    for token_id, name in NAMED_SPECIALS.items():
        if tokens[token_id] != f"<|{name}|>" or types[token_id] not in _SPECIAL_TYPES:
            message = f"Token {token_id} is {tokens[token_id]!r} of type {types[token_id]}"
            report.find(path, TOKENS_KEY, f"{message}, not the special token <|{name}|>.")
    for key, (right, is_needed) in _SPECIAL_IDS.items():
        stated = part.info.metadata.get(key)
        if stated not in right and (is_needed or stated is not None):
            names = " or ".join(map(str, sorted(right)))
            report.find(path, key, f"{key} is {stated}, not {names}.")


def _compare(part: Part, ours: Tokenizer, theirs: Tokenizer, report: Report) -> None:
    pairs = {
        TOKENS_KEY: (ours.tokens, theirs.tokens),
        _TYPES_KEY: (ours.types, theirs.types),
        _MERGES_KEY: (ours.merges, theirs.merges),
    }
    for key, (stated, right) in pairs.items():
        if stated != right:
            report.find(part.path, key, f"{key} is not that of the checkpoint's tokenizer.")
