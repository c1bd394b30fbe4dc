"""Streamed calls: the early pieces are a prefix of the final call."""

import json
import random
import string

import pytest

from gptoss_local.base.events import Delta
from gptoss_local.harmony import CallDelta, Tool, ToolCall, Vocabulary
from gptoss_local.harmony.parser import HarmonyParser
from tests.chat.test_calls import function
from tests.chat.test_parser import BASH, WEATHER, tagged

WRITE = function("write", "path", "text", path="string", text="string", line="integer")
NESTED = Tool("edit", "", {"type": "object", "properties": {"edits": {"type": "array"}}})
FREE = Tool("free", "", {})
TOOLS = (WRITE, NESTED, BASH, WEATHER, FREE)
HEADER = "⟨C⟩commentary to=functions.{} ⟨K⟩json⟨M⟩"
PROGRAM = "".join(
    f'def f{n}(x: "str") -> None:\n\tprint("\\\\{n}", {{x}}, [日本語 🎉])\n\n' for n in range(40)
)


def read(
    vocabulary: Vocabulary, text: str, *, streams_calls: bool = True
) -> tuple[list[Delta], str]:
    """The events, and the call that broke off."""
    parser = HarmonyParser(vocabulary, TOOLS, streams_calls=streams_calls)
    events: list[Delta] = []
    for token in vocabulary.encode_tagged(tagged(text)):
        events += parser.feed(token)
        if parser.broken_call:
            return events, parser.broken_call
    return events + parser.finish(), parser.broken_call


def pieces(events: list[Delta]) -> list[str]:
    return [event.text for event in events if isinstance(event, CallDelta)]


def calls(events: list[Delta]) -> list[ToolCall]:
    return [event for event in events if isinstance(event, ToolCall)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_ascii", [False, True])
def test_a_long_text_comes_as_it_is_written(
    vocabulary: Vocabulary, indent: int | None, is_ascii: bool
) -> None:
    arguments = {"path": "a/ü.py", "text": PROGRAM, "line": 3}
    body = json.dumps(arguments, indent=indent, ensure_ascii=is_ascii)
    events, broken = read(vocabulary, HEADER.format("write") + body + "⟨L⟩")
    (call,) = calls(events)
    assert broken == ""
    assert call.arguments == arguments
    assert len(pieces(events)) > 50
    early = "".join(pieces(events))
    assert call.arguments_json().startswith(early)
    assert len(early) > len(call.arguments_json()) - 80  # the last step, and later tokens
    unasked, _ = read(vocabulary, HEADER.format("write") + body + "⟨L⟩", streams_calls=False)
    assert [type(event) for event in unasked] == [ToolCall]
    heads = {(e.index, e.id, e.name) for e in events if isinstance(e, CallDelta)}
    assert heads == {(0, call.id, "write")}


@pytest.mark.parametrize("tag", ["⟨C⟩final⟨M⟩done⟨R⟩", "⟨S⟩assistant⟨C⟩final⟨M⟩x⟨R⟩", "⟨R⟩"])
def test_a_call_that_breaks_off_is_said_to_be_broken(vocabulary: Vocabulary, tag: str) -> None:
    script = "rm -rf (a script that is so long that its client gets to see it early"
    text = HEADER.format("bash") + '{"command": "' + script
    events, broken = read(vocabulary, text + tag)
    assert broken == "functions.bash"
    assert calls(events) == []
    assert "".join(pieces(events)) == '{"command":"' + script


def _body(rng: random.Random) -> tuple[str, str]:
    """Return a function, and the text of its arguments."""
    alphabet = string.ascii_letters + string.punctuation + " \n\t\"'\\{}[],:éß日🎉👩‍👩‍👧\u2028"
    words = "".join(rng.choices(alphabet, k=rng.randrange(200)))
    name, arguments = rng.choice(
        [
            ("write", {"path": words[:9], "text": words, "line": rng.randrange(99)}),
            ("edit", {"edits": [{"old": words, "new": words[::-1]}, {"deep": [[{"x": words}]]}]}),
            ("bash", {"command": words}),
            ("free", {words[:5]: words}),
            ("write", {"text": words, "extra": words, "path": None}),
            # calls in need of repair
            ("bash", {"name": "bash", "arguments": {"command": words}}),
            ("bash", {"input": json.dumps({"command": words})}),
            ("bash", [{"command": words}, {"command": words}]),
            ("unknown", {"command": words}),
        ]
    )
    return name, json.dumps(
        arguments, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5
    )


def _mutated(rng: random.Random, body: str) -> str:
    at = rng.randrange(len(body))
    kind = rng.randrange(5)
    if kind == 0:
        return body[:at] + body[at + 1 :]
    if kind == 1:
        return body[:at] + rng.choice('"{}[],:\\\n x') + body[at:]
    if kind == 2:
        return body[:at] + rng.choice(["⟨C⟩", "⟨E⟩", "⟨M⟩", "⟨K⟩", "⟨S⟩", "⟨R⟩"]) + body[at:]
    return body[:at] if kind == 3 else body + rng.choice([body, f",{body}", "}", " ok", ","])


def test_streamed_calls_are_the_calls_that_a_whole_answer_has(vocabulary: Vocabulary) -> None:
    rng = random.Random(1)
    n_broken = n_early = 0
    for _ in range(300):
        name, body = _body(rng)
        is_mutated = rng.random() < 0.7
        text = HEADER.format(name) + (_mutated(rng, body) if is_mutated else body) + "⟨L⟩"
        events, broken = read(vocabulary, text)
        whole, _ = read(vocabulary, text, streams_calls=False)
        early = "".join(e.text for e in events if isinstance(e, CallDelta) and e.index == 0)
        n_early += bool(early)
        if broken:
            n_broken += 1
            assert is_mutated
            assert calls(events) == []
            continue
        found = [(c.index, c.name, c.arguments) for c in calls(events)]
        assert found == [(c.index, c.name, c.arguments) for c in calls(whole)], text
        if early:
            assert calls(events)[0].arguments_json().startswith(early)
            assert calls(events)[0].id == next(e.id for e in events if isinstance(e, CallDelta))
    assert n_early > 80
    assert n_broken < 80  # most repairs succeed
