"""Tools in each API's spelling, tools that clients run, and free text, in each dialect."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Reply, Script, answer, calls
from tests.server.asked import Asked, run_asked
from tests.server.dialects import user

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: dict[str, Any] = {"name": "get_weather", "description": "Tells it."}
SPELLINGS: list[dict[str, Any]] = [
    {"type": "function", "function": WEATHER | {"parameters": SCHEMA}},
    {"function": WEATHER | {"parameters": SCHEMA}},
    {"type": "function", **WEATHER, "parameters": SCHEMA},
    WEATHER | {"parameters": SCHEMA},
    WEATHER | {"input_schema": SCHEMA},
    {"type": "custom", **WEATHER, "input_schema": SCHEMA},
    WEATHER | {"inputSchema": SCHEMA},
    {"type": "function", "function": WEATHER | {"input_schema": SCHEMA}},
]
LEFT_OUT: list[dict[str, Any]] = [
    {"type": "computer_use_preview", "display_width": 1},
    {"type": "computer_20250124", "name": "computer"},
    {"type": "image_generation", "size": "auto"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "web_fetch_20250910", "name": "web_fetch"},
    {"type": "code_execution_20250825", "name": "code_execution"},
    {"type": "advisor_20260301", "name": "advisor"},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "later_tool"}, "later_tool"),
    ({"type": "shell", "environment": {"type": "container_auto"}}, "shell"),
    ({"type": "function", "function": {"parameters": SCHEMA}}, "has no name"),
]
PATHS = ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"]

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch\n"
GRAMMAR = """start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: "*** Add File: " filename LF add_line+
filename: /(.+)/
add_line: "+" /(.*)/ LF
%import common.LF
"""
APPLY = {"type": "create_file", "path": "a.txt", "diff": "+x"}
EXEC = {"command": ["ls"], "env": {}, "type": "exec"}
OWN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("apply_patch", {"operation": APPLY}, {"operation": APPLY}),
    ("shell", {"commands": ["ls"]}, {"action": {"commands": ["ls"]}}),
    ("local_shell", {"command": ["ls"]}, {"action": EXEC}),
]
BODIES = [
    json.dumps({"input": PATCH}),
    PATCH,
    json.dumps(["apply_patch", PATCH]),
    json.dumps({"command": ["apply_patch", PATCH]}),
    json.dumps({"input": {"patch": PATCH}}),
    f"```\n{PATCH}```",
    json.dumps({"input": f"```diff\n{PATCH}```"}),
    json.dumps({"input": PATCH}).replace("\\n", "\n"),
]
RAW = ['{"a": 1,  "b": 2}', "[1, 2, 3]", "plain words", '{"input": 5}', '"quoted"', "  spaces \n"]
HEADER = "<|channel|>commentary to=functions.note <|constrain|>text<|message|>"

ECHO: Any = {"type": "function", "name": "echo", "description": "Repeats.", "parameters": SCHEMA}
NAMESPACE: Any = {
    "type": "namespace",
    "name": "mcp__echo",
    "description": "A server.",
    "tools": [ECHO],
}


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    for name, arguments, _ in OWN:
        script.say(f"Use {name}", calls(name, arguments, "Hm."), answer("Done."))
    for name in ("bash", "editor", "mcp__echo__echo", "tool_search", "echo"):
        script.say(f"Use {name}", calls(name, {"city": "Oslo"}, "Hm."), answer("Done."))
    for n, body in enumerate(BODIES + RAW):
        script.say(f"Write {n}", Reply(text=f"{HEADER}{body}<|call|>"))
    script.otherwise(answer("Well."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


@pytest.fixture
def client(asked: Asked) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="k") as client:
        yield client


@pytest.fixture
def claude(asked: Asked) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=asked.url, api_key="k", max_retries=0) as client:
        yield client


def sent(path: str, question: str, *tools: Any) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"input": question, "tools": tools}
    body = {"messages": [user(question)], "tools": tools}
    return body | ({"max_tokens": 999} if path == "/v1/messages" else {})


@pytest.mark.quick
@pytest.mark.parametrize("path", PATHS)
def test_every_spelling_is_offered_with_its_arguments(asked: Asked, path: str) -> None:
    for tool in SPELLINGS:
        assert asked.post(path, **sent(path, "Hi", tool)).status_code == 200, tool
        declared = "// Tells it.\ntype get_weather = (_: {\ncity: string,\n}) => any;"
        assert declared in asked.prompt(), tool


@pytest.mark.parametrize("path", PATHS)
def test_a_tool_that_cannot_be_offered_is_refused_by_name(asked: Asked, path: str) -> None:
    for tool, text in REFUSED:
        made = asked.post(path, **sent(path, "Hi", SPELLINGS[0], tool))
        assert (made.status_code, "tools[1]" in made.text) == (400, True), tool
        assert text in made.text
    other = SPELLINGS[0] | {"function": WEATHER | {"description": "Another."}}
    made = asked.post(path, **sent(path, "Hi", SPELLINGS[0], other))
    assert (made.status_code, "get_weather" in made.text) == (400, True)
    two = {"function": WEATHER | {"name": "other"}}
    assert asked.post(path, **sent(path, "Hi", two, *SPELLINGS[:1] * 2)).status_code == 200
    assert "type other" in asked.prompt()
    assert asked.prompt().count("type get_weather") == 1


@pytest.mark.parametrize("path", PATHS)
def test_tools_that_nobody_here_can_run_are_left_out_and_named(asked: Asked, path: str) -> None:
    """Codex offers `image_generation` unasked."""
    for tool in LEFT_OUT:
        made = asked.post(path, **sent(path, "Hi", SPELLINGS[0], tool))
        assert (made.status_code, asked.prompt().count("\ntype ")) == (200, 1), made.text
        assert made.headers["x-gptoss-warning"] == f"not offered: {tool['type']}"
        forced = sent(path, "Hi", SPELLINGS[0], tool) | {"tool_choice": {"type": tool["type"]}}
        made = asked.post(path, **forced)
        assert (made.status_code, tool["type"] in made.text) == (400, True)


def respond(
    client: openai.OpenAI, items: list[Any], tools: Any, *, stream: bool = False
) -> list[Any]:
    """Return the items of a response, streamed or whole."""
    if not stream:
        return list(client.responses.create(model="nano", input=items, tools=tools).output)
    events: Any = client.responses.create(model="nano", input=items, tools=tools, stream=True)
    return [event.item for event in events if event.type == "response.output_item.done"]


def goes_on(client: openai.OpenAI, items: list[Any], made: list[Any], tools: Any) -> None:
    """Send the result of the last call."""
    call = made[-1]
    output = {"type": f"{call.type}_output", "call_id": call.call_id, "output": "ok"}
    items = [*items, *(item.model_dump(exclude_none=True) for item in made), output]
    assert respond(client, items, tools)[-1].content[0].text == "Done."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "arguments", "fields"), OWN)
def test_tools_with_items_of_their_own(
    asked: Asked,
    client: openai.OpenAI,
    kind: str,
    arguments: Any,
    fields: dict[str, Any],
    stream: bool,
) -> None:
    items: list[Any] = [user(f"Use {kind}")]
    made = respond(client, items, [{"type": kind}], stream=stream)
    assert made[-1].type == f"{kind}_call"
    told = made[-1].to_dict(exclude_none=True)
    assert {name: told[name] for name in fields} == fields
    goes_on(client, items, made, [{"type": kind}])
    ((recipient, text),) = [(p[1], p[2]) for p in asked.done() if p[1]]
    assert (recipient, json.loads(text)) == (f"functions.{kind}", arguments)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_in_a_namespace_comes_as_the_client_dispatches_it(
    asked: Asked, client: openai.OpenAI, stream: bool
) -> None:
    items: list[Any] = [user("Use mcp__echo__echo")]
    made = respond(client, items, [NAMESPACE], stream=stream)
    assert (made[-1].name, made[-1].namespace) == ("echo", "mcp__echo")
    assert "mcp__echo__echo" in asked.prompt()
    assert "A server." in asked.prompt()
    goes_on(client, items, made, [NAMESPACE])
    assert [to for _, to, _ in asked.done() if to] == ["functions.mcp__echo__echo"]


def test_a_choice_may_name_a_tool_of_a_namespace(asked: Asked) -> None:
    named = {"type": "function", "name": "echo", "namespace": "mcp__echo"}
    body = {"input": "Use mcp__echo__echo", "tools": [NAMESPACE, ECHO]}
    made = asked.post("/v1/responses", tool_choice=named, **body).json()
    assert made["output"][-1]["namespace"] == "mcp__echo"
    other = named | {"namespace": "other"}
    assert asked.post("/v1/responses", tool_choice=other, **body).status_code == 400


def test_tools_that_the_conversation_brings_can_be_called(asked: Asked) -> None:
    search = {"type": "tool_search_call", "call_id": "c1", "arguments": {"q": "echo"}}
    for kind, before in (("additional_tools", []), ("tool_search_output", [search])):
        found = {"type": kind, "call_id": "c1", "tools": [NAMESPACE]}
        items = [user("Hi"), *before, found, user("Use mcp__echo__echo")]
        made = asked.post("/v1/responses", input=items).json()
        assert made["output"][-1]["namespace"] == "mcp__echo"


def test_a_search_of_the_clients_is_offered_and_defers_the_rest(asked: Asked) -> None:
    search = {"type": "tool_search", "execution": "client", "parameters": SCHEMA}
    deferred = ECHO | {"name": "hidden_tool", "defer_loading": True}
    body = sent("/v1/responses", "Use tool_search", search, deferred)
    call = asked.post("/v1/responses", **body).json()["output"][-1]
    assert (call["type"], call["arguments"]) == ("tool_search_call", {"city": "Oslo"})
    assert "hidden_tool" not in asked.prompt()


def test_a_deferred_tool_of_claude_code_is_offered_once_it_is_found(
    asked: Asked, claude: anthropic.Anthropic
) -> None:
    search: Any = {"name": "ToolSearch", "description": "Finds.", "input_schema": SCHEMA}
    hidden: Any = {"name": "mcp__echo__echo", "input_schema": SCHEMA, "defer_loading": True}
    shared: Any = {"model": "nano", "max_tokens": 99, "tools": [search, hidden]}
    claude.messages.create(messages=[user("Hi")], **shared)  # type: ignore[list-item]
    assert "mcp__echo__echo" not in asked.prompt()
    use = {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"city": "echo"}}
    reference = {"type": "tool_reference", "tool_name": "mcp__echo__echo"}
    found = {"type": "tool_result", "tool_use_id": "t1", "content": [reference]}
    after = [found, {"type": "text", "text": "Use mcp__echo__echo"}]
    turns: list[Any] = [user("Hi"), {"role": "assistant", "content": [use]}, user(after)]
    made = claude.messages.create(messages=turns, **shared)
    assert made.content[-1].type == "tool_use"
    assert made.content[-1].name == "mcp__echo__echo"
    assert "[the tool 'mcp__echo__echo' can be called now]" in asked.prompt()


def test_anthropics_tools_are_called_by_their_names(
    asked: Asked, claude: anthropic.Anthropic
) -> None:
    for kind, name in (("bash_20250124", "bash"), ("text_editor_20250728", "editor")):
        turn: Any = user(f"Use {name}")
        tools: Any = [{"type": kind, "name": name}]
        made = claude.messages.create(model="nano", max_tokens=999, messages=[turn], tools=tools)
        call = made.content[-1]
        assert call.type == "tool_use"
        assert (call.name, call.input) == (name, {"city": "Oslo"})
        assert f"type {name} = (_: {{" in asked.prompt()


def test_threads_are_refused_as_the_sdk_understands(
    asked: Asked, claude: anthropic.Anthropic
) -> None:
    """Its runner of tools asks for a thread first, then sends the whole conversation each time."""

    @anthropic.beta_tool
    def echo(city: str) -> str:
        """Repeat.

        Args:
            city: What to repeat.
        """
        return f"you said {city}"

    turn: Any = user("Use echo")
    runner = claude.beta.messages.tool_runner(
        model="nano", max_tokens=99, tools=[echo], messages=[turn]
    )
    last = runner.until_done().content[-1]
    assert last.type == "text"
    assert last.text == "Done."
    assert "you said Oslo" in asked.prompt()
    going_on = {"type": "continue", "previous_message_id": "msg_x"}
    lost = asked.post("/v1/messages", thread=going_on, **sent("/v1/messages", "Hi"))
    assert lost.status_code == 404
    assert lost.json()["error"]["details"] == {"error_code": "thread_not_found"}
    refused = asked.post("/v1/messages", thread={"type": "create"}, **sent("/v1/messages", "Hi"))
    assert refused.status_code == 400
    assert refused.json()["error"]["details"]["unsupported"] == ["thread"]


def note(*, grammar: bool) -> dict[str, Any]:
    form = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
    return {"type": "custom", "name": "note"} | ({"format": form} if grammar else {})


def test_a_grammar_finds_the_text_in_other_wrappers(asked: Asked) -> None:
    for n, body in enumerate(BODIES):
        whole = sent("/v1/responses", f"Write {n}", note(grammar=True))
        call = asked.post("/v1/responses", **whole).json()["output"][-1]
        assert (call["type"], call["input"]) == ("custom_tool_call", PATCH), body


@pytest.mark.parametrize("grammar", [False, True])
def test_other_text_goes_through_byte_for_byte(asked: Asked, grammar: bool) -> None:
    for n, text in enumerate(RAW, len(BODIES)):
        whole = sent("/v1/responses", f"Write {n}", note(grammar=grammar))
        assert asked.post("/v1/responses", **whole).json()["output"][-1]["input"] == text
        custom = {"type": "custom", "custom": {"name": "note"}}
        whole = sent("/v1/chat/completions", f"Write {n}", custom)
        chat = asked.post("/v1/chat/completions", **whole).json()
        (call,) = chat["choices"][0]["message"]["tool_calls"]
        assert call["custom"] == {"name": "note", "input": text}
