"""A question and its answer, and the split of questions that are about numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bench.nano.data.document import Answer
from bench.nano.data.source import Source, is_held_out

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer, without the conversation around it."""

    prompt: str
    answer: Answer


def on_our_side(source: Source, draw: Callable[[Source], T], key: Callable[[T], str]) -> T:
    """Draw numbers until they are on the source's side of the split."""
    while True:
        value = draw(source)
        if is_held_out(key(value)) == source.held_out:
            return value
