"""o200k_harmony, the vocabulary of every gpt-oss: its rank file, special tokens, split and merges.

OpenAI publishes it as `o200k_base.tiktoken`, one token per line in rank order.
"""

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

CHAR_OF_BYTE = {b: chr(b) for b in _PRINTABLE} | {b: chr(256 + i) for i, b in enumerate(_OTHERS)}

BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}

VOCAB_SIZE = 201_088
MAX_VOCAB_SIZE = 1 << 20  # far above any fine-tune's
LONGEST_TOKEN_BYTES = 128
FIRST_SPECIAL = 199_998
ENDS = (199_999, 200_002, 200_012)  # `<|endoftext|>`, `<|return|>`, `<|call|>`: each ends a text
END_OF_PROMPT = 200_018  # the last id with a name in the published tokenizer.json

TOKENS_SHA256 = "0fc8da96e9c1e979d83a0ad79129255c04f3d2806273de8cba33bbc584ed23fe"
"""Hash of its tokens in GPT-2's byte-to-unicode spelling, joined by newlines."""

MERGES_SHA256 = "fbb4bf8ec1a0dec603d12b4f4f7ff2939ff6ae1a8d94e6df0380b74b1c90f66f"
"""Hash of `derive_merges` as "left right", joined by newlines."""

TOKENS_KEY = "tokenizer.ggml.tokens"
TYPES_KEY = "tokenizer.ggml.token_type"
MERGES_KEY = "tokenizer.ggml.merges"

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # numbers of `llama_token_type`

NAMED_SPECIALS = {
    199998: "startoftext",
    199999: "endoftext",
    200002: "return",
    200003: "constrain",
    200005: "channel",
    200006: "start",
    200007: "end",
    200008: "message",
    200012: "call",
}

SPECIAL_TOKENS = {
    token_id: f"<|{NAMED_SPECIALS.get(token_id, f'reserved_{token_id}')}|>"
    for token_id in range(FIRST_SPECIAL, VOCAB_SIZE)
}
"""Names by id; unused ones are `<|reserved_ID|>`."""

_LETTER_HEAD = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SPLIT_REGEX = "|".join(
    [
        f"{_LETTER_HEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}",
        f"{_LETTER_HEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""Cuts text before BPE. Source: openai-harmony, `tiktoken_ext/public_encodings.rs`, o200k."""


def has_its_ranks(tokens: Sequence[str]) -> bool:
    try:
        return _sha256(tokens[:FIRST_SPECIAL]) == TOKENS_SHA256
    except (TypeError, UnicodeEncodeError):  # a value that is not text
        return False


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def vocabulary_faults(
    tokens: Sequence[str], types: Sequence[int], merges: Sequence[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the GGUF's key and a sentence for each fault of a gpt-oss vocabulary.

    Tokens that harmony does not use may have any name, and more may follow; a vocabulary too small
    for harmony is only checked for consistency. `types` are numbers of `llama_token_type`, `merges`
    "left right"; without them, those of the file count as right.
    """
    if len(types) != len(tokens):
        yield TYPES_KEY, f"There are {len(types)} types for {len(tokens)} tokens."
        return
    if is_harmony_sized(tokens):
        if not has_its_ranks(tokens):
            yield TOKENS_KEY, "The tokens differ from o200k_harmony's."
        if merges is not None and _sha256(map(str, merges)) != MERGES_SHA256:
            yield MERGES_KEY, "The merges differ from o200k_harmony's."
        if set(types[:FIRST_SPECIAL]) != {NORMAL}:
            yield TYPES_KEY, "A token of plain text has another type than NORMAL."
        for i in NAMED_SPECIALS:
            if tokens[i] != SPECIAL_TOKENS[i] or types[i] not in (CONTROL, USER_DEFINED):
                fault = f"Token {i} is {tokens[i]!r} of type {types[i]}, not {SPECIAL_TOKENS[i]}."
                yield TOKENS_KEY, fault
    if len(set(tokens)) != len(tokens):
        twice = Counter(tokens).most_common(1)[0][0]
        yield TOKENS_KEY, f"The token {twice!a:.80} appears twice."


def is_harmony_sized(tokens: Sequence[str]) -> bool:
    return len(tokens) > max(NAMED_SPECIALS)


def renamed_tokens(tokens: Sequence[str]) -> dict[int, str]:
    """Return the special tokens, by id, whose names no program gives them in o200k_harmony."""
    return {
        i: text
        for i, text in enumerate(tokens[FIRST_SPECIAL:], FIRST_SPECIAL)
        if text not in (SPECIAL_TOKENS.get(i), f"[PAD{i}]")
        and (i, text) != (END_OF_PROMPT, "<|endofprompt|>")
    }


def own_tokens(tokens: Sequence[str], types: Sequence[int]) -> dict[int, bytes]:
    """Return the bytes of a fine-tune's own tokens, by id; none of one that shows no text.

    As in llama.cpp, a token that was added is spelled as it is; NORMAL ones are in GPT-2's way.
    """
    own: dict[int, bytes] = {}
    for i, text in renamed_tokens(tokens).items():
        is_spelled = types[i] == NORMAL and BYTE_OF_CHAR.keys() >= set(text)
        plain = text.encode() if types[i] in (NORMAL, USER_DEFINED) else b""
        own[i] = bytes(map(BYTE_OF_CHAR.__getitem__, text)) if is_spelled else plain
    return own


def parse_ranks(rank_file: bytes) -> list[str]:
    """Read `o200k_base.tiktoken`: tokens in rank order, in GPT-2's byte-to-unicode spelling."""
    tokens: list[str] = []
    for rank, line in enumerate(rank_file.splitlines()):
        token, _, stated_rank = line.partition(b" ")
        if stated_rank != b"%d" % rank:
            raise ValueError(f"line {rank + 1} does not state the rank {rank}")
        try:
            raw = base64.b64decode(token, validate=True)
        except binascii.Error as error:
            raise ValueError(f"line {rank + 1} is not base64") from error
        tokens.append(raw.decode("latin-1").translate(CHAR_OF_BYTE))
    return tokens


def derive_merges(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """List every way in which a token is two tokens side by side, as (left, right) pairs.

    Pairs are ordered by the rank of their token, then of left, then of right. BPE over this list
    equals tiktoken's with the ranks, as both take the lowest rank first. `vocab` is in rank order.
    """
    merges: list[tuple[str, str]] = []
    for token in vocab:
        splits = [
            (left, right)
            for i in range(1, len(token))
            if (left := token[:i]) in vocab and (right := token[i:]) in vocab
        ]
        if len(splits) > 1:  # no two splits share their left part, so its rank alone decides
            splits.sort(key=lambda split: vocab[split[0]])
        merges += splits
    return merges
