"""A tool loop continues from the model's own tokens, even if its client sends others back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Reply, Script, answer
from tests.server.asked import Asked, run_asked
from tests.server.dialects import NAMES, Call, Dialect, Ollama, Said, speak, user

NEXT = "<|end|><|start|>assistant"
STEP = (
    f"<|channel|>analysis<|message|>Find out what is there.{NEXT}"
    f"<|channel|>analysis<|message|>A table would help:\n\n| a | b |\n|---|---|\n| 1 | 日本 |{NEXT}"
    f"<|channel|>commentary<|message|>I will list the folder.\n\n1. `ls`{NEXT}"
    f"<|channel|>analysis<|message|>Use ls.{NEXT}"
)
SPELT = '<|channel|>commentary to=functions.list_files <|constrain|>json<|message|>{"path": "a/ü"}'
CANONICAL = (
    ' to=functions.list_files<|channel|>commentary <|constrain|>json<|message|>{"path":"a/ü"}'
)
SLIP = "<|channel|>commentary to=functions.list-files <|constrain|>json<|message|>{'path': 'a/ü',}"
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "list_files", "description": "Lists files.", "parameters": PARAMETERS}
RESULT = "x.py\n\ny.py"


def goes_on_exactly(asked: Asked, step: str) -> bool:
    """Compare the second prompt with the first one, the model's tokens and the result."""
    first, second = asked.prompts[-2:]
    written = [*first, *asked.vocabulary.encode_tagged(step + "<|call|>")]
    rest = asked.vocabulary.encoding.decode(second[len(written) :])
    return second[: len(written)] == written and rest == (
        "<|start|>functions.list_files to=assistant<|channel|>commentary"
        f"<|message|>{RESULT}<|end|><|start|>assistant"
    )


@pytest.fixture(scope="module")
def loop(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    for question, call in (("Spelt", SPELT), ("Canonical", CANONICAL), ("Slip", SLIP)):
        script.say(question, Reply(text=f"{STEP}{call}<|call|>"), answer("Two files.", "Easy."))
    two = '{"path": "a"}<|end|><|start|>assistant'
    script.say(
        "Twice",
        Reply(text=f"{SPELT.partition('{')[0]}{two}{SPELT}<|call|>"),
        Reply(text=f"{SPELT}<|call|>"),
        answer("Two."),
    )
    with run_asked(nano_home, vocabulary, script) as asked:
        yield asked


class RawOllama(Ollama):
    """By HTTP, as the SDK forgets the ids of calls, by which the server knows them again."""

    def _whole(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        sent = {"messages": turns, "stream": False} | fields
        url = str(self._sdk._client.base_url).rstrip("/")
        reply = httpx.post(f"{url}/api/chat", json=sent, timeout=300).json()
        told = ollama.ChatResponse(**reply)
        return self._said(told, told.message, 1)._replace(turns=[reply["message"]])


@pytest.fixture(scope="module")
def spoken(loop: Asked) -> Iterator[dict[str, Dialect]]:
    with speak(loop.url) as dialects, ollama.Client(loop.url) as client:
        yield dialects | {"ollama": RawOllama(client)}


@pytest.fixture(params=NAMES)
def dialect(spoken: dict[str, Dialect], request: pytest.FixtureRequest) -> Dialect:
    return spoken[request.param]


def without_thoughts(turns: list[Any]) -> list[Any]:
    """Return the turns of a client that does not send reasoning back."""
    kept = []
    for turn in turns:
        left = {k: v for k, v in turn.items() if not k.startswith(("reasoning", "thinking"))}
        if isinstance(left.get("content"), list):
            left["content"] = [b for b in left["content"] if b["type"] != "thinking"]
        kept += [left] * (turn.get("type") != "reasoning")
    return kept


def drive(
    dialect: Dialect, question: str, *, thinks: bool = True, then: Dialect | None = None
) -> Said:
    """Ask, and answer the call; `then` is another client with the same conversation."""
    said = dialect.ask([user(question)], tools=[FUNCTION])
    turns = said.turns if thinks else without_thoughts(said.turns)
    result = dialect.result(said.calls[0], RESULT)
    last = (then or dialect).ask([user(question), *turns, result], tools=[FUNCTION])
    assert last.content == "Two files."
    return said


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("question", ["Spelt", "Canonical"])
def test_the_next_prompt_has_what_the_model_wrote(
    loop: Asked, dialect: Dialect, question: str, thinks: bool
) -> None:
    """Both analyses, the preamble in its channel, the call as it was spelt; no newline is added."""
    drive(dialect, question, thinks=thinks)
    assert goes_on_exactly(loop, STEP + {"Spelt": SPELT, "Canonical": CANONICAL}[question])


THOUGHTS = [
    ("analysis", "", "Find out what is there."),
    ("analysis", "", "A table would help:\n\n| a | b |\n|---|---|\n| 1 | 日本 |"),
]
SAID = [("commentary", "", "I will list the folder.\n\n1. `ls`")]
LAST_THOUGHT = [("analysis", "", "Use ls.")]
CALL = [("commentary", "functions.list_files", '{"path":"a/ü"}')]


@pytest.mark.parametrize("name", ["chat", "responses", "messages"])
def test_another_client_gets_nothing_of_the_servers_memory(
    loop: Asked, spoken: dict[str, Dialect], name: str
) -> None:
    """As after a restart; where a dialect carries all of it, the loop goes on the same way."""
    with speak(loop.url, "another") as others:
        drive(spoken[name], "Spelt", thinks=False, then=others[name])
        assert loop.done() == [*SAID, *CALL]
        if name != "chat":
            drive(spoken[name], "Canonical", then=others[name])
            assert loop.done() == [*THOUGHTS, *SAID, *LAST_THOUGHT, *CALL]
            assert goes_on_exactly(loop, STEP + CANONICAL)


def test_a_slip_is_not_repeated(loop: Asked, dialect: Dialect) -> None:
    """The call is the repaired one, which has been run; the reasoning comes back."""
    drive(dialect, "Slip", thinks=False)
    thought = "\n\n".join(text for _, _, text in [*THOUGHTS, *LAST_THOUGHT])
    assert loop.done() == [("analysis", "", thought), *SAID, *CALL]


def test_what_a_client_changed_stays_changed(loop: Asked, spoken: dict[str, Dialect]) -> None:
    chat = spoken["chat"]
    said = chat.ask([user("Spelt")], tools=[FUNCTION])
    said.turns[0]["tool_calls"][0]["function"]["arguments"] = '{"path": "b"}'
    result = chat.result(said.calls[0], RESULT)
    chat.ask([user("Spelt"), *said.turns, result], tools=[FUNCTION])
    assert loop.done()[-1] == ("commentary", "functions.list_files", '{"path":"b"}')


def test_an_answer_that_the_server_remembers(loop: Asked, spoken: dict[str, Dialect]) -> None:
    """A finished turn has no reasoning, and its calls and preamble stay in their channels."""
    ask: Any = {"tools": [{"type": "function", **FUNCTION}]}
    made = loop.post("/v1/responses", input="Spelt", **ask).json()
    result = spoken["responses"].result(Call(made["output"][-1]["call_id"], "", {}), RESULT)
    kept = {"previous_response_id": made["id"]}
    last = loop.post("/v1/responses", input=[result], **ask, **kept).json()
    assert goes_on_exactly(loop, STEP + SPELT)
    loop.post("/v1/responses", input="Spelt", **ask, previous_response_id=last["id"])
    assert loop.done() == [*SAID, *CALL, ("final", "", "Two files.")]


@pytest.mark.parametrize("name", ["chat", "responses", "messages"])
def test_the_next_turn_knows_of_the_one_call_alone(
    loop: Asked, spoken: dict[str, Dialect], name: str
) -> None:
    dialect, turns = spoken[name], [user("Twice")]
    for path in ("a", "a/ü"):
        said = dialect.ask(turns, tools=[FUNCTION], one_call=True)
        (call,) = said.calls
        assert call.arguments == {"path": path}
        turns += [*said.turns, dialect.result(call, "x")]
    assert dialect.ask(turns, tools=[FUNCTION], one_call=True).content == "Two."
    assert [text for _, to, text in loop.done() if to] == ['{"path": "a"}', '{"path": "a/ü"}']
