"""Tools in namespaces, tools that are found later, and one call at a time, by real SDKs."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.dialects.openai.responses_tools import ClientTools
from tests.scripted_engine import Script, answer, calls
from tests.server.asked import Asked, run_asked

PARAMETERS: Any = {"type": "object", "properties": {"text": {"type": "string"}}}
ECHO: Any = {
    "type": "function",
    "name": "echo",
    "description": "Repeats.",
    "parameters": PARAMETERS,
}
NAMESPACE: Any = {
    "type": "namespace",
    "name": "mcp__echo",
    "description": "A server.",
    "tools": [ECHO],
}


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    for question, name in (
        ("Spaced", "mcp__echo__echo"),
        ("Search", "tool_search"),
        ("Plain", "echo"),
    ):
        call = calls(name, {"text": "hi"}, "Thinking.")
        script.say(question, call, answer("Done."))
    script.otherwise(answer("Well."))
    with run_asked(nano_home, vocabulary, script) as asked:
        yield asked


@pytest.fixture
def client(asked: Asked) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="k") as client:
        yield client


@pytest.fixture
def claude(asked: Asked) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=asked.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_in_a_namespace_comes_as_the_client_dispatches_it(
    asked: Asked, client: openai.OpenAI, stream: bool
) -> None:
    items: list[Any] = [{"role": "user", "content": "Spaced"}]
    if stream:
        seen = list(
            client.responses.create(model="nano", input=items, tools=[NAMESPACE], stream=True)
        )
        added = [e.item for e in seen if e.type == "response.output_item.added"]
        done = [e.item for e in seen if e.type == "response.output_item.done"]
        assert [(i.name, i.namespace) for i in added if i.type == "function_call"] == [
            ("echo", "mcp__echo")
        ]
        assert any(e.type == "response.function_call_arguments.delta" for e in seen)
        made = done
    else:
        made = client.responses.create(model="nano", input=items, tools=[NAMESPACE]).output
    call = made[-1]
    assert (call.name, call.namespace) == ("echo", "mcp__echo")  # type: ignore[union-attr]
    assert "mcp__echo__echo" in asked.prompt()
    assert "A server." in asked.prompt()
    items += [item.model_dump(exclude_none=True) for item in made]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "hi"})  # type: ignore[union-attr]
    after = client.responses.create(model="nano", input=items, tools=[NAMESPACE])
    assert after.output_text == "Done."
    assert [(p[1], p[2]) for p in asked.done() if p[1]] == [
        ("functions.mcp__echo__echo", '{"text": "hi"}')
    ]


def test_a_choice_may_name_a_tool_of_a_namespace(asked: Asked) -> None:
    named = {"type": "function", "name": "echo", "namespace": "mcp__echo"}
    sent = {"input": "Spaced", "tools": [NAMESPACE, ECHO]}
    made = asked.post("/v1/responses", tool_choice=named, **sent).json()
    assert made["output"][-1]["namespace"] == "mcp__echo"
    other = named | {"namespace": "other"}
    assert asked.post("/v1/responses", tool_choice=other, **sent).status_code == 400


@pytest.mark.timing
def test_many_calls_of_many_tools_are_named_at_once() -> None:
    toolbox = ClientTools({"type": "function", "name": f"f{i}"} for i in range(5000))
    begin_s = time.process_time()
    names = [toolbox.name_of("", f"f{i}") for i in range(5000)]
    assert time.process_time() - begin_s < 0.5
    assert names[-1] == "f4999"


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output"])
def test_tools_that_the_conversation_brings_can_be_called(asked: Asked, kind: str) -> None:
    found = {"type": kind, "call_id": "c1", "tools": [NAMESPACE]}
    items: list[Any] = [{"role": "user", "content": "Plain"}]
    if kind == "tool_search_output":
        items.append({"type": "tool_search_call", "call_id": "c1", "arguments": {"q": "echo"}})
    sent = asked.post("/v1/responses", input=[*items, found, {"role": "user", "content": "Spaced"}])
    assert sent.json()["output"][-1]["namespace"] == "mcp__echo"


def test_a_search_of_the_clients_is_offered_and_defers_the_rest(asked: Asked) -> None:
    search = {"type": "tool_search", "execution": "client", "description": "Finds tools.",
              "parameters": PARAMETERS}  # fmt: skip
    deferred = ECHO | {"name": "hidden_tool", "defer_loading": True}
    made = asked.post("/v1/responses", input="Search", tools=[search, deferred]).json()
    assert made["output"][-1]["type"] == "tool_search_call"
    assert made["output"][-1]["arguments"] == {"text": "hi"}
    assert "hidden_tool" not in asked.prompt()


def test_a_deferred_tool_of_claude_code_is_offered_once_it_is_found(
    asked: Asked, claude: anthropic.Anthropic
) -> None:
    search: Any = {"name": "ToolSearch", "description": "Finds.", "input_schema": PARAMETERS}
    hidden: Any = {"name": "mcp__echo__echo", "description": "Repeats.",
                   "input_schema": PARAMETERS, "defer_loading": True}  # fmt: skip
    said: list[Any] = [{"role": "user", "content": "Hi"}]
    shared: Any = {"model": "nano", "max_tokens": 99, "tools": [search, hidden]}
    claude.messages.create(messages=said, **shared)
    assert "mcp__echo__echo" not in asked.prompt()
    said += [
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"text": "echo"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "tool_reference", "tool_name": "mcp__echo__echo"}]},
            {"type": "text", "text": "Spaced"}]},
    ]  # fmt: skip
    made = claude.messages.create(messages=said, **shared)
    assert made.content[-1].type == "tool_use"
    assert made.content[-1].name == "mcp__echo__echo"
    assert "[the tool 'mcp__echo__echo' can be called now]" in asked.prompt()


def test_threads_are_refused_as_the_sdk_understands(
    asked: Asked, claude: anthropic.Anthropic
) -> None:
    """Its runner of tools asks for a thread first, then sends the whole conversation each time."""

    @anthropic.beta_tool
    def echo(text: str) -> str:
        """Repeat.

        Args:
            text: What to repeat.
        """
        return f"you said {text}"

    runner = claude.beta.messages.tool_runner(
        model="nano", max_tokens=99, tools=[echo], messages=[{"role": "user", "content": "Plain"}]
    )
    last = runner.until_done()
    assert last.content[-1].type == "text"
    assert last.content[-1].text == "Done."
    assert "you said hi" in asked.prompt()


def test_a_thread_that_is_not_known(asked: Asked) -> None:
    said = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    going_on = {"type": "continue", "previous_message_id": "msg_x"}
    lost = asked.post("/v1/messages", thread=going_on, **said)
    assert lost.status_code == 404
    assert lost.json()["error"]["details"] == {"error_code": "thread_not_found"}
    refused = asked.post("/v1/messages", thread={"type": "create"}, **said)
    assert refused.status_code == 400
    assert refused.json()["error"]["details"]["unsupported"] == ["thread"]
