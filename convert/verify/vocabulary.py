"""The vocabulary inside a GGUF: o200k_harmony, or the checkpoint's if it has another size.

Token by token; nothing is tokenized here.
"""

from hashlib import sha256
from typing import Any

from gguf import TokenType

from convert.tokenizer import PRE_TOKENIZER
from convert.tokenizer_files import ID_KEYS, Tokenizer
from convert.verify.report import Report
from convert.verify.structure import ModelFile
from gptoss_local.errors import ModelLoadError
from gptoss_local.formats.gguf_file import TOKENS_KEY, read_array
from gptoss_local.formats.o200k import (
    END_OF_PROMPT,
    FIRST_SPECIAL,
    MERGES_SHA256,
    NAMED_SPECIALS,
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    has_its_ranks,
)

_TYPES_KEY = "tokenizer.ggml.token_type"
_MERGES_KEY = "tokenizer.ggml.merges"
_FIXED: dict[str, list[object]] = {
    "tokenizer.ggml.model": ["gpt2"],
    "tokenizer.ggml.pre": [PRE_TOKENIZER],
    "tokenizer.ggml.add_bos_token": [False, None],  # a rendered harmony prompt is complete
    "tokenizer.ggml.add_eos_token": [False, None],
}
# gptoss does without these, as it counts on harmony alone; other programs may read text otherwise.
_HARMLESS: dict[str, list[object]] = {
    "tokenizer.ggml.pre": ["default", None],
    "tokenizer.ggml.add_bos_token": [True],
    "tokenizer.ggml.add_eos_token": [True],
}
_SPECIAL_IDS: dict[str, set[object]] = {
    "bos": {199998},
    "eos": {199999, 200002, 200012},
    "pad": {None, *range(FIRST_SPECIAL, VOCAB_SIZE)},  # not used here; others differ
}


def read_tokens(part: ModelFile, report: Report) -> list[str]:
    """Read the tokens of a model's first file; none if it has no list of them."""
    return _read(part, TOKENS_KEY, report)


def check_vocabulary(
    part: ModelFile,
    tokens: list[str],
    expected: Tokenizer | None,
    report: Report,
    *,
    is_compared: bool,
) -> None:
    """Check tokens, types, merges and special ids.

    Args:
        part: The first file.
        tokens: As `read_tokens` gave them.
        expected: The vocabulary of a model without gpt-oss's 201,088 tokens; None if unknown.
        report: Gets the findings.
        is_compared: Whether the file should equal our conversion of a checkpoint; else differences
            of no consequence here are only noted.
    """
    path, metadata = part.path, part.info.metadata
    for key, right in _FIXED.items():
        stated = metadata.get(key)
        if stated in right:
            continue
        if stated in _HARMLESS.get(key, []) and not is_compared:
            report.note(path, f"{key} is {stated} where gpt-oss has {right[0]}")
        else:
            report.find(path, key, f"{key} is {stated} where gpt-oss needs {right[0]}.")
    types, merges = _read(part, _TYPES_KEY, report), _read(part, _MERGES_KEY, report)
    if len(types) != len(tokens):
        report.find(path, _TYPES_KEY, f"There are {len(types)} types for {len(tokens)} tokens.")
    elif len(tokens) == VOCAB_SIZE:
        _check_o200k(part, tokens, types, merges, report)
        _check_special_ids(part, report, is_compared=is_compared)
    elif expected is None:
        n = f"{len(tokens):,} tokens, not {VOCAB_SIZE:,}"
        report.find(path, TOKENS_KEY, f"The vocabulary is not o200k_harmony: it has {n}.")
    else:
        ids = {k: metadata[key] for k, key in ID_KEYS.items() if key in metadata}
        _compare(part, Tokenizer(tokens, types, merges, ids, None), expected, report)


def _read(part: ModelFile, key: str, report: Report) -> list[Any]:
    try:
        return read_array(part.path, key)
    except ModelLoadError as error:
        report.find(part.path, key, f"{key} cannot be read: {error.message}.")
        return []


def _check_o200k(
    part: ModelFile, tokens: list[str], types: list[int], merges: list[str], report: Report
) -> None:
    path = part.path
    if not has_its_ranks(tokens):
        report.find(path, TOKENS_KEY, "The tokens are not those of o200k_harmony.")
    if sha256("\n".join(map(str, merges)).encode()).hexdigest() != MERGES_SHA256:
        report.find(path, _MERGES_KEY, "The merges are not those of o200k_harmony.")
    if len(set(tokens)) != len(tokens):
        report.find(path, TOKENS_KEY, "A token appears twice.")
    if set(types[:FIRST_SPECIAL]) != {TokenType.NORMAL}:
        report.find(path, _TYPES_KEY, "A token of plain text has another type than NORMAL.")
    for i in range(FIRST_SPECIAL, VOCAB_SIZE):
        if (tokens[i], types[i]) not in _special_tokens(i):
            message = f"Token {i} is {tokens[i]!r} of type {types[i]}, which is not gpt-oss's."
            report.find(path, TOKENS_KEY, message)


def _check_special_ids(part: ModelFile, report: Report, *, is_compared: bool) -> None:
    for kind, right in _SPECIAL_IDS.items():
        key = ID_KEYS[kind]
        if (stated := part.info.metadata.get(key)) in right:
            continue
        if stated is None and not is_compared:
            report.note(part.path, f"{key} is missing; gptoss does not need it")
        else:
            report.find(part.path, key, f"{key} is {stated}, which is not gpt-oss's.")


def _special_tokens(token_id: int) -> set[tuple[str, int]]:
    """List the possible tokens; only some programs name or drop the tokens without a use."""
    texts = [SPECIAL_TOKENS[token_id]]
    texts += ["<|endofprompt|>"] if token_id == END_OF_PROMPT else []
    kinds = int(TokenType.CONTROL), int(TokenType.USER_DEFINED)
    found = {(text, kind) for text in texts for kind in kinds}
    is_named = token_id in NAMED_SPECIALS
    return found if is_named else found | {(f"[PAD{token_id}]", int(TokenType.UNUSED))}


def _compare(part: ModelFile, ours: Tokenizer, theirs: Tokenizer, report: Report) -> None:
    pairs = {
        TOKENS_KEY: (ours.tokens, theirs.tokens),
        _TYPES_KEY: (ours.types, theirs.types),
        _MERGES_KEY: (ours.merges, theirs.merges),
        "tokenizer.ggml's special ids": (ours.special_ids, theirs.special_ids),
    }
    for key, (stated, right) in pairs.items():
        if stated != right:
            report.find(part.path, key, f"{key} is not that of the checkpoint's tokenizer.")
