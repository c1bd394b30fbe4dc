"""The vocabulary inside a GGUF: right by itself, and the checkpoint's where that is known."""

from typing import Any

from convert.tokenizer import PRE_TOKENIZER, find_faults
from convert.tokenizer_files import ID_KEYS, Tokenizer
from convert.verify.report import Report
from convert.verify.structure import ModelFile
from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.gguf_file import read_array
from gptoss_local.base.formats.o200k import (
    MERGES_KEY,
    TOKENS_KEY,
    TYPES_KEY,
    is_harmony_sized,
    renamed_tokens,
)

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
_UNCHECKED = "not checked without the checkpoint"
_SPECIAL_IDS = {"bos": (199998,), "eos": (199999, 200002, 200012)}  # pad is not used here


def read_tokens(part: ModelFile, report: Report) -> list[str]:
    return _read(part, TOKENS_KEY, report)


def check_vocabulary(
    part: ModelFile,
    tokens: list[str],
    expected: Tokenizer | None,
    report: Report,
    *,
    is_compared: bool,
) -> None:
    """Check tokens, types, merges and special ids of a model's first file.

    `expected` is the checkpoint's vocabulary, if known. Unless `is_compared` with our conversion,
    differences of no consequence here are only noted.
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
    types, merges = _read(part, TYPES_KEY, report), _read(part, MERGES_KEY, report)
    ids = {kind: i for kind, key in ID_KEYS.items() if type(i := metadata.get(key)) is int}
    ours = Tokenizer(tokens, types, merges, ids, None)
    for key, fault in find_faults(ours):
        report.find(path, key, fault)
    if not is_harmony_sized(tokens):
        if expected is None:
            report.note(path, f"its {len(tokens):,} tokens are not gpt-oss's, and are {_UNCHECKED}")
        else:
            _compare(part, ours, expected, report)
        return
    renamed = renamed_tokens(tokens)
    theirs = renamed if expected is None else renamed_tokens(expected.tokens)
    for i in sorted(i for i in renamed | theirs if renamed.get(i) != theirs.get(i)):
        message = f"Token {i} is {tokens[i] if i < len(tokens) else None!r}, not the checkpoint's."
        report.find(path, TOKENS_KEY, message)
    if renamed and expected is None:
        first = min(renamed)
        names = f"{len(renamed)} tokens, such as {first}, {renamed[first]!r}"
        report.note(path, f"the names of {names}, are {_UNCHECKED}")
    _check_special_ids(part, ids, expected, report)


def _read(part: ModelFile, key: str, report: Report) -> list[Any]:
    try:
        return read_array(part.path, key)
    except ModelLoadError as error:
        report.find(part.path, key, f"{key} cannot be read: {error.message}.")
        return []


def _check_special_ids(
    part: ModelFile, ids: dict[str, int], expected: Tokenizer | None, report: Report
) -> None:
    for kind, usual in _SPECIAL_IDS.items():
        key, stated = ID_KEYS[kind], ids.get(kind)
        right = None if expected is None else expected.special_ids.get(kind)
        if stated in usual or stated == right:
            continue
        if expected is not None:
            report.find(part.path, key, f"{key} is {stated}; the checkpoint has {right}.")
        elif stated is None:
            report.note(part.path, f"{key} is missing; gptoss does not need it")
        else:
            report.note(part.path, f"{key}, {stated}, is {_UNCHECKED}")


def _compare(part: ModelFile, ours: Tokenizer, theirs: Tokenizer, report: Report) -> None:
    pairs = {
        TOKENS_KEY: (ours.tokens, theirs.tokens),
        TYPES_KEY: (ours.types, theirs.types),
        MERGES_KEY: (ours.merges, theirs.merges),
        "tokenizer.ggml's special ids": (ours.special_ids, theirs.special_ids),
    }
    for key, (stated, right) in pairs.items():
        if stated != right:
            report.find(part.path, key, f"{key} is not that of the checkpoint's tokenizer.")
