"""A model that calls an undeclared tool is told so within its answer, and tries again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Reply, Script, answer, calls, calls_built_in
from tests.server.asked import Asked, run_asked
from tests.server.dialects import user

pytestmark = pytest.mark.quick

F: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PYTHON: Any = {"type": "function", "function": {"name": "python"}}
TRIES = [calls_built_in("python", "print(1)", "Hm."), answer("One.")]


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    script.say("Compute", *TRIES)
    script.say("Forever", calls_built_in("python", "print(2)"))
    called = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    script.say("Prose", Reply(text=f"{called}First `rm -rf x`.<|call|>"), calls("f", {}))
    invented = '<|start|>functions.f to=assistant<|channel|>commentary<|message|>{"t": 9}<|end|>'
    said = "<|start|>assistant<|channel|>final<|message|>9 degrees.<|return|>"
    script.say("Invent", Reply(text=f'{called}{{"x": 1}}<|end|>{invented}{said}'), answer("4."))
    script.say("Guess", calls("g", {"x": 1}), calls("f", {}), answer("Done."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


def chat(asked: Asked, *turns: Any, **body: Any) -> dict[str, Any]:
    reply: dict[str, Any] = asked.post("/api/chat", messages=list(turns), **body).json()
    return reply


def test_the_model_tries_again(asked: Asked) -> None:
    reply = chat(asked, user("Compute"))
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
    result = "Error: there is no tool python. There are no tools: answer without."
    assert asked.texts("python") == [result]


def test_it_is_told_which_tools_there_are(asked: Asked) -> None:
    reply = chat(asked, user("Guess"), tools=[F, PYTHON])
    (call,) = reply["message"]["tool_calls"]
    assert call["function"]["name"] == "f"
    told = asked.texts("functions.g")
    assert told == ["Error: there is no tool functions.g. There are: functions.f, python."]


def test_a_model_that_never_learns_is_ended(asked: Asked) -> None:
    n_before = len(asked.prompts)
    reply = chat(asked, user("Forever"))
    assert len(asked.prompts) - n_before == 5  # the last one asks for the answer
    assert reply["message"]["content"] == "print(2)"  # rather than nothing
    assert reply["message"]["thinking"].count("print(2)") == 5
    assert reply["done_reason"] == "stop"
    limit = reply["eval_count"] // 2 + 2  # of all tries
    cut = chat(asked, user("Forever"), options={"num_predict": limit})
    assert (cut["eval_count"], cut["done_reason"]) == (limit, "length")


def test_built_in_tools_go_to_the_client(asked: Asked) -> None:
    """As with Ollama's own runner: declared by name, and answered by the client."""
    message = chat(asked, user("Compute"), tools=[PYTHON])["message"]
    (call,) = message["tool_calls"]
    told = call["function"]
    assert (told["name"], told["arguments"]) == ("python", {"code": "print(1)"})
    result = {"role": "tool", "tool_name": "python", "content": "1\n"}
    done = chat(asked, user("Compute"), message, result, tools=[PYTHON])
    assert done["message"]["content"] == "One."
    assert "## python" in asked.prompt()
    assert asked.done()[-1] == ("analysis", "python", "print(1)")
    assert asked.texts("python") == ["1\n"]


def test_a_sentence_is_no_json(asked: Asked) -> None:
    message = chat(asked, user("Prose"), tools=[F])["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == {}
    assert message["content"] == ""
    assert "must be a JSON object" in asked.texts("functions.f")[0]


def test_the_next_turn_repeats_the_call_alone(asked: Asked) -> None:
    message = chat(asked, user("Invent"), tools=[F])["message"]
    done = chat(asked, user("Invent"), message, {"role": "tool", "content": "4"}, tools=[F])
    assert done["message"]["content"] == "4."
    assert asked.texts("functions.f") == ["4"]
    assert asked.prompt().count("to=functions.f") == 1
