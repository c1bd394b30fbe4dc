"""Splits token ids into the harmony messages that they spell."""

import re
from collections.abc import Iterable, Sequence

from gptoss_local.api.gptoss import HarmonyPiece
from gptoss_local.harmony.vocabulary import MESSAGE, MESSAGE_ENDS, START, Vocabulary

_RECIPIENT = re.compile(r" to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>([^\s<]+)")
_KIND = re.compile(r"<\|constrain\|>(\S+)")


def inspect_tokens(
    prompt: Sequence[int],
    answer: Sequence[int],
    next_prompt: Sequence[int],
    vocabulary: Vocabulary,
) -> list[HarmonyPiece]:
    """Split a prompt, which ends in the header of the answer, and the answer into messages."""
    pieces = [_piece(part, vocabulary) for part in _split([*prompt, *answer])]
    if answer:
        n_before = sum(token == START for token in prompt) - 1  # the last header is the answer's
        for piece in pieces[n_before:]:
            piece.is_answer = True
    if next_prompt:
        _mark_dropped(pieces, [_piece(part, vocabulary) for part in _split(next_prompt)])
    return pieces


def _mark_dropped(pieces: Iterable[HarmonyPiece], kept: Sequence[HarmonyPiece]) -> None:
    """Mark pieces that `kept` lacks; it may spell headers otherwise."""
    n_found = 0
    for piece in pieces:
        places = (i for i in range(n_found, len(kept)) if _is_same(piece, kept[i]))
        idx = next(places, None)
        piece.is_dropped = idx is None
        n_found = n_found if idx is None else idx + 1


def _is_same(one: HarmonyPiece, other: HarmonyPiece) -> bool:
    names = ("author", "channel", "recipient", "text")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _split(tokens: Sequence[int]) -> list[list[int]]:
    starts = [i for i, token in enumerate(tokens) if token == START]
    ends = [*starts[1:], len(tokens)]
    return [list(tokens[a:b]) for a, b in zip(starts, ends, strict=True)]


def _piece(tokens: list[int], vocabulary: Vocabulary) -> HarmonyPiece:
    opening = tokens.index(MESSAGE) if MESSAGE in tokens else len(tokens)
    header = vocabulary.text_of(tokens[1:opening])
    body = tokens[opening + 1 :]
    if body and body[-1] in MESSAGE_ENDS:
        body = body[:-1]
    author = re.split(r"[ <]", header, maxsplit=1)[0]

    def found(pattern: re.Pattern[str]) -> str:
        match = pattern.search(header)
        return match[1] if match else ""

    return HarmonyPiece(
        author=author,
        channel=found(_CHANNEL),
        recipient=found(_RECIPIENT),
        content_type=found(_KIND),
        text=vocabulary.text_of(body),
        tokens=tokens,
    )
