"""Tokens -> events with a stop string: the order of an answer's pieces stays."""

from typing import Any

import pytest

from gptoss_local.harmony import ContentDelta, ReasoningDelta, Tool, ToolCall, Vocabulary
from gptoss_local.harmony.parser import HarmonyParser
from gptoss_local.harmony.reader import Reader

pytestmark = pytest.mark.quick

NEXT = "<|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>I look it up.\n<|end|>" + NEXT
CALL = " to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|>" + NEXT


def shown(vocabulary: Vocabulary, tagged: str, *stop: str) -> list[str]:
    """Return the client's view; neighbours of a kind are joined."""
    reader = Reader(HarmonyParser(vocabulary, (Tool("f"),)), stop, None)
    deltas = [d for token in vocabulary.encode_tagged(tagged) for d in reader.feed(token)]
    pieces: list[list[Any]] = []
    for delta in [*deltas, *reader.finish()]:
        text = f"{delta.name}()" if isinstance(delta, ToolCall) else delta.text
        if pieces and pieces[-1][0] is type(delta):
            pieces[-1][1] += text
        else:
            pieces.append([type(delta), text])
    kinds = {ContentDelta: "", ReasoningDelta: "~", ToolCall: "!"}
    return [kinds[kind] + text for kind, text in pieces]


@pytest.mark.parametrize("stop", [(), ("\n\nUser:",), ("nowhere", "\n!")])
def test_a_preamble_ends_before_its_call(vocabulary: Vocabulary, stop: tuple[str, ...]) -> None:
    """Its last newline is held back, as it may begin a stop string."""
    expected = ["~Hm.", "I look it up.\n", "!f()"]
    assert shown(vocabulary, THOUGHT + PREAMBLE + CALL, *stop) == expected
    later = [*expected[1:2], "~Hm.", "!f()"]
    assert shown(vocabulary, PREAMBLE + THOUGHT + CALL, *stop) == later


def test_nothing_follows_a_stop_string(vocabulary: Vocabulary) -> None:
    assert shown(vocabulary, THOUGHT + PREAMBLE + CALL, " up.") == ["~Hm.", "I look it"]
