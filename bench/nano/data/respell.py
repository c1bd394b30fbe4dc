"""Spells rare words of an answer with the tokens that they have in the prompt.

The prompt has `Spring` `field`, the answer would have ` Springfield`: nothing in the prompt says
that this is one token, so no model without rows for all of them can know. The same text in the
tokens that were read can be copied. Words that nano says by itself stay as they are, or how it
says "commas" would hang on whether the prompt happens to have that word.
"""

import functools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from bench.nano.phrases import banks
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.models.nano.compact import N_PIECES, spelling
from gptoss_local.models.nano.ranks import load_ranks

BANK = banks("respell")
CAPITALS = dict(banks("knowledge").CAPITALS)

COMMON_RANKS = 10_000  # whole words below this rank nano knows anyway
N_TRIES = 8  # places of a word in the prompt that are looked at


class Read:
    """Tokens of a prompt, or of a part of it, as something to copy from.

    Attributes:
        known: The tokens, and those that their words are made of where they stand alone.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        distinct = set(tokens)
        self.known = distinct.union(p for token in distinct for p in spelling_of(token)[1])

    @functools.cached_property
    def _text(self) -> bytes:
        return b"".join(map(_bytes, self._tokens))

    @functools.cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(_bytes(t)) for t in self._tokens), initial=0))

    def find(self, word: bytes) -> list[int] | None:
        """The tokens of a word as it was read, without a character before it."""
        at = -1
        for _ in range(N_TRIES):
            at = self._text.find(word, at + 1)
            if at < 0:
                return None
            if found := self._cut(at, at + len(word)):
                return found
        return None

    def _cut(self, start: int, end: int) -> list[int] | None:
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1) - 1
        if self._starts[last + 1] != end:
            return None
        head = [self._tokens[first]]
        if self._starts[first] != start:
            prefix, pieces = spelling_of(self._tokens[first])
            if not prefix or self._starts[first] + 1 != start:
                return None
            head = list(pieces)
        return [*head, *self._tokens[first + 1 : last + 1]]


def n_pieces(word: str) -> int:
    """In how many tokens a word is written that was read as one, with a space before it.

    0 where nano cannot know, as a code has no room for so many.
    """
    token = rank_of().get(f" {word}".encode())
    n = 1 if token is None else len(spelling_of(token)[1])
    return n if n <= N_PIECES else 0


def respell(target: Sequence[int], *parts: Read) -> list[int]:
    """Replace the tokens of rare words that the prompt does not spell.

    A name behind a sign keeps that sign's token only if it was read so.

    Args:
        target: An answer as the tokenizer encodes it.
        parts: The prompt; the part that most likely holds what is copied comes first.

    Returns:
        Tokens of the same text.
    """
    tokens: list[int] = []
    for name in _words(target, joint=b"_"):
        if _is_behind_sign(name[0]) and (found := _as_read(name, parts)):
            tokens += found
            continue
        for word in _words(name):
            is_common = len(word) == 1 and not _is_rare(word[0])
            if not is_common and not all(_is_known(token, parts) for token in word):
                word = _respell_word(word, parts)
            tokens += word
    return tokens


def _words(tokens: Sequence[int], joint: bytes = b"") -> Iterator[list[int]]:
    """Cut wherever not both of the neighbours are letters or digits, and after escapes.

    Args:
        joint: Signs that count as letters.
    """
    word: list[int] = []
    for token in tokens:
        last = _bytes(word[-1]) if word else b""
        is_inside = last and all(_is_wordy(byte, joint) for byte in (last[-1], _bytes(token)[0]))
        if word and (not is_inside or last[:1] == b"\\"):
            yield word
            word = []
        word.append(token)
    if word:
        yield word


def _is_wordy(byte: int, joint: bytes) -> bool:
    return 0x80 <= byte < 0xFF or (byte < 0x80 and chr(byte).isalnum()) or byte in joint


def _is_behind_sign(token: int) -> bool:
    """A sign and the beginning of a name, as `(key` is, but no escape.

    That another name was read that begins so must not decide how this one is spelled. A common
    one with a dot stays, as calls are headed `functions.get_user`.
    """
    sign = spelling_of(token)[0]
    return sign not in (0, *b" \\") and (sign != ord(".") or _is_rare(token))


def _respell_word(word: list[int], parts: Sequence[Read]) -> list[int]:
    if found := _as_read(word, parts):
        return found
    prefix, pieces = spelling_of(word[0])
    if prefix and all(_is_known(piece, parts) for piece in pieces):
        return [_token_of(prefix), *pieces, *word[1:]]
    return word


def _as_read(word: list[int], parts: Sequence[Read]) -> list[int] | None:
    text = b"".join(map(_bytes, word))
    if found := _find(text, parts):
        return found
    prefix = spelling_of(word[0])[0]
    if prefix and (found := _find(text[1:], parts)):
        return [_token_of(prefix), *found]
    return None


def _token_of(character: int) -> int:
    return rank_of()[bytes([character])]


def _find(word: bytes, parts: Sequence[Read]) -> list[int] | None:
    return next((found for part in parts if (found := part.find(word))), None)


def _is_known(token: int, parts: Sequence[Read]) -> bool:
    return any(token in part.known for part in parts)


def _is_rare(token: int) -> bool:
    if token >= FIRST_SPECIAL or token in _own_tokens():
        return False
    return token >= COMMON_RANKS or not spelling_of(token)[0]


@functools.cache
def _own_tokens() -> frozenset[int]:
    names = " ".join((*CAPITALS, *CAPITALS.values()))
    found = (rank_of().get(f" {word}".encode()) for word in (*BANK.OWN_WORDS, *names.split()))
    return frozenset(token for token in found if token is not None)


@functools.cache
def spelling_of(token: int) -> tuple[int, tuple[int, ...]]:
    """`codes.spelling` of a token; a special one has no pieces."""
    if token >= FIRST_SPECIAL:
        return 0, ()
    prefix, pieces = spelling(_ranks()[token], rank_of())
    return prefix, tuple(pieces)


def _bytes(token: int) -> bytes:
    return _ranks()[token] if token < FIRST_SPECIAL else b"\xff"  # a byte of no text


@functools.cache
def _ranks() -> list[bytes]:
    return load_ranks()


@functools.cache
def rank_of() -> dict[bytes, int]:
    """The id of every token of text, by its bytes."""
    return {token: rank for rank, token in enumerate(_ranks())}
