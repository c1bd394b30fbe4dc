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
    (
        "local_shell",
        {"command": ["ls"]},
        {"action": {"command": ["ls"], "env": {}, "type": "exec"}},
    ),
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


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    for name, arguments, _ in OWN:
        script.say(f"Use {name}", calls(name, arguments, "Hm."), answer("Done."))
    for name in ("bash", "editor", "memory"):
        script.say(f"Use {name}", calls(name, {"command": "view"}), answer("Done."))
    for n, body in enumerate(BODIES + RAW):
        script.say(f"Write {n}", Reply(text=f"{HEADER}{body}<|call|>"))
    script.otherwise(answer("Well."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


def sent(path: str, question: str, *tools: Any) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"input": question, "tools": tools}
    body = {"messages": [{"role": "user", "content": question}], "tools": tools}
    return body | ({"max_tokens": 999} if path == "/v1/messages" else {})


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("tool", SPELLINGS)
def test_every_spelling_is_offered_with_its_arguments(asked: Asked, path: str, tool: Any) -> None:
    assert asked.post(path, **sent(path, "Hi", tool)).status_code == 200
    declared = "// Tells it.\ntype get_weather = (_: {\ncity: string,\n}) => any;"
    assert declared in asked.prompt()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "tool",
    [
        {"type": "computer_use_preview", "display_width": 1},
        {"type": "image_generation"},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "function", "function": {"parameters": SCHEMA}},
    ],
)
def test_a_tool_that_cannot_be_offered_is_refused_by_name(
    asked: Asked, path: str, tool: Any
) -> None:
    made = asked.post(path, **sent(path, "Hi", SPELLINGS[0], tool))
    assert made.status_code == 400
    assert "tools[1]" in made.text
    assert "has no name" in made.text or tool["type"] in made.text


@pytest.mark.parametrize("path", PATHS)
def test_a_search_that_agents_offer_unasked_is_said_to_be_missing(asked: Asked, path: str) -> None:
    made = asked.post(path, **sent(path, "Hi", SPELLINGS[0], {"type": "web_search"}))
    assert made.status_code == 200
    assert made.headers["x-gptoss-warning"] == "not offered: web_search"
    assert "search" not in asked.prompt()
    plain = asked.post(path, **sent(path, "Hi", SPELLINGS[0]))
    assert "x-gptoss-warning" not in plain.headers


@pytest.mark.parametrize("path", PATHS)
def test_two_tools_of_one_name_are_refused(asked: Asked, path: str) -> None:
    other = SPELLINGS[0] | {"function": WEATHER | {"description": "Another."}}
    made = asked.post(path, **sent(path, "Hi", SPELLINGS[0], other))
    assert made.status_code == 400
    assert "get_weather" in made.text
    assert asked.post(path, **sent(path, "Hi", *SPELLINGS[:1] * 2)).status_code == 200
    assert asked.prompt().count("type get_weather") == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "arguments", "fields"), OWN)
def test_tools_with_items_of_their_own(
    asked: Asked, kind: str, arguments: Any, fields: dict[str, Any], stream: bool
) -> None:
    with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="k") as client:
        items: list[Any] = [{"role": "user", "content": f"Use {kind}"}]
        tools: Any = [{"type": kind}]
        if stream:
            with client.responses.stream(model="nano", input=items, tools=tools) as events:
                made = events.get_final_response()
        else:
            made = client.responses.create(model="nano", input=items, tools=tools)
        call: Any = made.output[-1]
        assert call.type == f"{kind}_call"
        assert {
            k: v.to_dict(exclude_none=True) for k, v in dict(call).items() if k in fields
        } == fields
        items += [item.model_dump(exclude_none=True) for item in made.output]
        items.append({"type": f"{kind}_call_output", "call_id": call.call_id, "output": "ok"})
        after = client.responses.create(model="nano", input=items, tools=tools)
        assert after.output_text == "Done."
    ((recipient, text),) = [(p[1], p[2]) for p in asked.done() if p[1]]
    assert recipient == f"functions.{kind}"
    assert json.loads(text) == arguments


@pytest.mark.parametrize(
    ("kind", "name"),
    [("bash_20250124", "bash"), ("text_editor_20250728", "editor"), ("memory_20250818", "memory")],
)
def test_anthropics_tools_are_called_by_their_names(asked: Asked, kind: str, name: str) -> None:
    tools: Any = [{"type": kind, "name": name}]
    turn: Any = {"role": "user", "content": f"Use {name}"}
    with anthropic.Anthropic(base_url=asked.url, api_key="k") as client:
        made = client.messages.create(model="nano", max_tokens=999, messages=[turn], tools=tools)
    call = made.content[-1]
    assert call.type == "tool_use"
    assert (call.name, call.input) == (name, {"command": "view"})
    assert f"type {name} = (_: {{" in asked.prompt()


def note(*, grammar: bool) -> dict[str, Any]:
    form = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
    return {"type": "custom", "name": "note"} | ({"format": form} if grammar else {})


@pytest.mark.parametrize("n", range(len(BODIES)))
def test_a_grammar_finds_the_text_in_other_wrappers(asked: Asked, n: int) -> None:
    made = asked.post("/v1/responses", **sent("/v1/responses", f"Write {n}", note(grammar=True)))
    call = made.json()["output"][-1]
    assert call["type"] == "custom_tool_call"
    assert call["input"] == PATCH


@pytest.mark.parametrize("grammar", [False, True])
@pytest.mark.parametrize("n", range(len(RAW)))
def test_other_text_goes_through_byte_for_byte(asked: Asked, n: int, grammar: bool) -> None:
    question = f"Write {len(BODIES) + n}"
    made = asked.post("/v1/responses", **sent("/v1/responses", question, note(grammar=grammar)))
    assert made.json()["output"][-1]["input"] == RAW[n]
    custom = {"type": "custom", "custom": {"name": "note"}}
    chat = asked.post("/v1/chat/completions", **sent("/v1/chat/completions", question, custom))
    (call,) = chat.json()["choices"][0]["message"]["tool_calls"]
    assert call["custom"] == {"name": "note", "input": RAW[n]}
