"""A model that calls what nobody declared is told so within its answer, and tries again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Reply, Script, answer, calls, calls_built_in
from tests.server.asked import Asked, run_asked

pytestmark = pytest.mark.quick

F: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

TRIES = [calls_built_in("python", "print(1)", "Hm."), answer("One.")]


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    script.say("Compute", *TRIES)
    script.say("Forever", calls_built_in("python", "print(2)"))
    bash = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    script.say("Prose", Reply(text=f"{bash}First `rm -rf x`.<|call|>"), calls("f", {}))
    invented = '<|start|>functions.f to=assistant<|channel|>commentary<|message|>{"t": 9}<|end|>'
    call = '<|channel|>commentary to=functions.f<|message|>{"x": 1}<|end|>'
    glued = f"{call}{invented}<|start|>assistant<|channel|>final<|message|>9 degrees.<|return|>"
    script.say("Invent", Reply(text=glued), answer("It is 4."))
    script.say("Guess", calls("g", {"x": 1}), calls("f", {}), answer("Done."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


def chat(asked: Asked, question: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    reply: dict[str, Any] = asked.post("/api/chat", messages=messages, **body).json()
    return reply


def test_the_model_tries_again(asked: Asked) -> None:
    reply = chat(asked, "Compute")
    message = reply["message"]
    assert message["content"] == "One."
    assert message["thinking"] == "Hm.\n\nprint(1)"
    assert "tool_calls" not in message
    assert reply["done_reason"] == "stop"
    first, second = asked.prompts[-2:]
    assert second[: len(first)] == first  # so that its prefix is there
    assert reply["prompt_eval_count"] == len(first)
    n_written = [len(asked.vocabulary.encode_tagged(each.text)) for each in TRIES]
    assert reply["eval_count"] == sum(n_written), "both tries are counted"
    (result,) = [piece for piece in asked.pieces() if piece.author == "python"]
    assert result.text == "Error: there is no tool python. There are no tools: answer without."


def test_it_is_told_what_there_is(asked: Asked) -> None:
    python = {"type": "function", "function": {"name": "python"}}
    reply = chat(asked, "Guess", tools=[F, python])
    (call,) = reply["message"]["tool_calls"]
    assert call["function"]["name"] == "f"
    told = asked.texts("functions.g")
    assert told == ["Error: there is no tool functions.g. There are: functions.f, python."]


def test_a_model_that_never_learns_is_ended(asked: Asked) -> None:
    n_before = len(asked.prompts)
    reply = chat(asked, "Forever")
    assert len(asked.prompts) - n_before == 4
    assert reply["message"]["content"] == "print(2)"  # rather than nothing
    assert reply["message"]["thinking"].count("print(2)") == 3
    assert reply["done_reason"] == "stop"


def test_a_limit_of_tokens_is_that_of_all_tries(asked: Asked) -> None:
    n_written = chat(asked, "Forever")["eval_count"]
    reply = chat(asked, "Forever", options={"num_predict": n_written // 2 + 2})
    assert reply["eval_count"] == n_written // 2 + 2
    assert reply["done_reason"] == "length"


def test_built_in_tools_go_to_the_client(asked: Asked) -> None:
    """As with Ollama's own runner: declared by name, and answered by the client."""
    python = {"type": "function", "function": {"name": "python"}}
    question = {"role": "user", "content": "Compute"}
    reply = chat(asked, "Compute", tools=[python])
    message = reply["message"]
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "python", "arguments": {"code": "print(1)"}} | {
        key: value for key, value in call["function"].items() if key == "index"
    }
    result = {"role": "tool", "tool_name": "python", "content": "1\n"}
    done = asked.post("/api/chat", messages=[question, message, result], tools=[python]).json()
    assert done["message"]["content"] == "One."
    assert "## python" in asked.prompt()
    assert asked.done()[-1] == ("analysis", "python", "print(1)")
    assert asked.texts("python") == ["1\n"]


FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}
ONE_TEXT = {"type": "object", "properties": {"command": {"type": "string"}}}


def test_a_sentence_is_no_json(asked: Asked) -> None:
    f = {"type": "function", "function": FUNCTION | {"parameters": ONE_TEXT}}
    message = chat(asked, "Prose", tools=[f])["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == {}
    assert message["content"] == ""
    assert "must be a JSON object" in asked.texts("functions.f")[0]


def test_the_next_turn_repeats_the_call_alone(asked: Asked) -> None:
    tools = [{"type": "function", "function": FUNCTION}]
    message = chat(asked, "Invent", tools=tools)["message"]
    question, result = {"role": "user", "content": "Invent"}, {"role": "tool", "content": "4"}
    done = asked.post("/api/chat", messages=[question, message, result], tools=tools).json()
    assert done["message"]["content"] == "It is 4."
    assert asked.texts("functions.f") == ["4"]
    assert asked.prompt().count("to=functions.f") == 1
