"""Histories are always taken: what no client can take back is in the prompt, or a note is."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer
from tests.server.asked import Asked, run_asked

QUESTION = {"role": "user", "content": "Weather?"}
LATER = {"role": "user", "content": "And now?"}
PATHS = ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"]
NOTE = "left out: only text can be read here]"
PNG = "data:image/png;base64,aGk="


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    script.otherwise(answer("Fine."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


def conversation(path: str, *turns: dict[str, Any]) -> dict[str, Any]:
    """A body of the messages, whatever the dialect calls them."""
    name = "input" if path == "/v1/responses" else "messages"
    return {name: list(turns)} | ({"max_tokens": 99} if path == "/v1/messages" else {})


def call(path: str, arguments: Any) -> dict[str, Any]:
    """A call in the history."""
    if path == "/v1/responses":
        return {"type": "function_call", "call_id": "c", "name": "get", "arguments": arguments}
    if path == "/v1/messages":
        use = {"type": "tool_use", "id": "c", "name": "get", "input": arguments}
        return {"role": "assistant", "content": [use]}
    one = {"id": "c", "type": "function", "function": {"name": "get", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [one]}


def result(path: str, text: str = "error: bad JSON", call_id: str = "c") -> dict[str, Any]:
    if path == "/v1/responses":
        return {"type": "function_call_output", "call_id": call_id, "output": text}
    if path == "/v1/messages":
        content = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return {"role": "user", "content": [content]}
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("not json", "not json"),
        ('{"city":', '{"city":'),
        ("null", "null"),
        ("[]", "[]"),
        ('"x"', '"x"'),
        ('{"a":1}{"b":2}', '{"a":1}{"b":2}'),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a":' * 200, '{"a":' * 200),
        ('{"city": "Oslo 日本"}', '{"city":"Oslo 日本"}'),
        ({"city": None}, '{"city":null}'),
        (["Oslo"], '["Oslo"]'),
        (5, "5"),
        (True, "true"),
        ("  ", "{}"),
        ("", "{}"),
        (None, "{}"),
    ],
)
def test_arguments_are_in_the_prompt_as_they_are(
    asked: Asked, path: str, arguments: Any, text: str
) -> None:
    body = conversation(path, QUESTION, call(path, arguments), result(path))
    reply = asked.post(path, **body)
    assert reply.status_code == 200, reply.text
    assert asked.done() == [("commentary", "functions.get", text)]
    assert asked.texts("functions.get") == ["error: bad JSON"]


@pytest.mark.parametrize("path", PATHS)
def test_a_call_without_a_result_and_a_result_without_a_call(asked: Asked, path: str) -> None:
    orphan = result(path, "9 C", "nobody's")
    reply = asked.post(path, **conversation(path, QUESTION, call(path, {}), LATER))
    assert reply.status_code == 200, reply.text
    assert asked.texts() == ["Weather?", "{}", "And now?"]
    reply = asked.post(path, **conversation(path, QUESTION, orphan))
    assert reply.status_code == 200, reply.text
    assert asked.texts("functions.unknown") == ["9 C"]
    nameless = {"id": "c", "type": "function", "function": {"arguments": "{}"}}
    if path in ("/api/chat", "/v1/chat/completions"):
        turn = {"role": "assistant", "tool_calls": [nameless]}
        assert asked.post(path, **conversation(path, QUESTION, turn, orphan)).status_code == 200
        assert asked.done() == [("commentary", "functions.unknown", "{}")]


@pytest.mark.parametrize("path", PATHS)
def test_a_role_that_harmony_does_not_have(asked: Asked, path: str) -> None:
    critic = {"role": "critic", "content": "Too **short**."}
    reply = asked.post(path, **conversation(path, QUESTION, critic, LATER))
    assert reply.status_code == 200, reply.text
    noted = "[message of the role 'critic']\nToo **short**."
    assert asked.texts("user") == ["Weather?", noted, "And now?"]


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
def test_functions_from_before_there_were_tools(asked: Asked, path: str) -> None:
    """Without the call the model would make it again."""
    called = {"role": "assistant", "content": None}
    called |= {"function_call": {"name": "get", "arguments": '{"city":"Oslo"}'}}
    returned = {"role": "function", "name": "get", "content": "9 C"}
    turns = [QUESTION, called, returned] if path != "/api/chat" else [QUESTION, returned]
    assert asked.post(path, **conversation(path, *turns)).status_code == 200
    assert asked.texts("functions.get") == ["9 C"]
    if path != "/api/chat":
        assert asked.done() == [("commentary", "functions.get", '{"city":"Oslo"}')]


def test_parts_that_other_programs_keep_in_the_content(asked: Asked) -> None:
    parts = [
        {"type": "thinking", "thinking": "Look it up."},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c", "name": "get", "input": {"city": "Oslo"}},
    ]
    given = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [{"type": "text", "text": "9 C"}],
    }
    turns = [
        QUESTION,
        {"role": "assistant", "content": parts},
        {"role": "user", "content": [given]},
    ]
    reply = asked.post("/v1/chat/completions", messages=turns)
    assert reply.status_code == 200, reply.text
    assert asked.done() == [
        ("analysis", "", "Look it up."),
        ("commentary", "", "I look."),
        ("commentary", "functions.get", '{"city":"Oslo"}'),
    ]
    assert asked.texts("user")[-1] == "9 C"
    thought = {"role": "assistant", "content": [{"type": "reasoning", "text": "Hm."}]}
    spoken = {"role": "assistant", "content": None, "audio": {"id": "a"}}
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    asked.post("/v1/chat/completions", messages=[QUESTION, spoken, LATER, refused, LATER, thought])
    said = ["Weather?", f"[audio {NOTE}", "And now?", "I will not.", "And now?"]
    assert asked.texts() == said
    assert asked.prompt().endswith("<|channel|>analysis<|message|>Hm.")  # the answer continues it


PICTURES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"type": "image_url", "image_url": {"url": PNG}},
    "/v1/responses": {"type": "input_image", "image_url": PNG},
    "/v1/messages": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    },
}


def picture(path: str, text: str) -> dict[str, Any]:
    """A message of the user: a text and a picture."""
    if path == "/api/chat":
        return {"role": "user", "content": text, "images": ["aGk="]}
    kind = "input_text" if path == "/v1/responses" else "text"
    return {"role": "user", "content": [{"type": kind, "text": text}, PICTURES[path]]}


@pytest.mark.parametrize("path", PATHS)
def test_only_a_picture_that_the_user_has_just_sent_is_refused(asked: Asked, path: str) -> None:
    """An earlier one may have been for another model, and clients send those of tools as a user."""
    said = {"role": "assistant", "content": "A cat."}

    def post(*turns: dict[str, Any]) -> str:
        reply = asked.post(path, **conversation(path, *turns))
        assert reply.status_code == 200, reply.text
        return next(text for text in asked.texts() if NOTE in text)

    of_tool = result(path, "Seen: ")
    if path == "/v1/messages":
        of_tool["content"][0]["content"] = picture(path, "Seen: ")["content"]
    elif path == "/v1/responses":
        of_tool["output"] = picture(path, "Seen: ")["content"]
    else:
        of_tool |= picture(path, "Seen: ") | {"role": "tool"}
    called = call(path, {})
    for noted in (
        post(picture(path, "Seen: "), said, LATER),
        post(QUESTION, called, of_tool),
        post(QUESTION, called, result(path), picture(path, "Seen: ")),
    ):
        assert noted.startswith("Seen: [")
        assert noted.endswith(NOTE)
    refused = asked.post(path, **conversation(path, QUESTION, said, picture(path, "Seen: ")))
    assert refused.status_code == 400
    assert "text only" in refused.text


SUMMARY = [{"type": "summary_text", "text": "I must look."}]
RAW = [{"type": "reasoning_text", "text": "I must look."}]


@pytest.mark.parametrize(
    ("path", "thought"),
    [
        ("/api/chat", {"thinking": "I must look."}),
        ("/api/chat", {"reasoning": "I must look."}),
        ("/api/chat", {"reasoning_content": "I must look."}),
        ("/v1/chat/completions", {"reasoning": "I must look.", "content": None}),
        ("/v1/chat/completions", {"reasoning": None, "reasoning_content": "I must look."}),
        ("/v1/responses", {"summary": SUMMARY}),
        ("/v1/responses", {"summary": [], "encrypted_content": "gptoss:I must look."}),
        ("/v1/responses", {"content": RAW}),
        ("/v1/messages", {"type": "thinking", "thinking": "I must look.", "signature": ""}),
        ("/v1/messages", {"type": "thinking", "thinking": "", "signature": "gptoss:I must look."}),
    ],
)
def test_reasoning_of_a_tool_loop_is_read_under_every_name(
    asked: Asked, path: str, thought: dict[str, Any]
) -> None:
    turns = [call(path, {}), result(path)]
    if path == "/v1/responses":
        turns = [{"type": "reasoning"} | thought, *turns]
    elif path == "/v1/messages":
        turns[0]["content"].insert(0, thought)
    else:
        turns[0] |= thought
    assert asked.post(path, **conversation(path, QUESTION, *turns)).status_code == 200
    assert asked.done() == [("analysis", "", "I must look."), ("commentary", "functions.get", "{}")]


BILLING = "x-anthropic-billing-header: cc_version=2.1.36.abc; cc_entrypoint=cli; cch={};"


def test_the_line_of_billing_is_left_out(asked: Asked) -> None:
    """It changes with each request, and with it the whole prompt would."""
    prompts = []
    for code in ("a1b2c", "d3e4f"):
        line = BILLING.format(code)
        blocks = [{"type": "text", "text": text} for text in (line, "You are Claude.\nBe brief.")]
        asked.post("/v1/messages", max_tokens=99, system=blocks, messages=[QUESTION])
        prompts.append(asked.prompt())
        system = {"role": "system", "content": f"{line}\nYou are Claude.\nBe brief."}
        asked.post("/v1/chat/completions", messages=[system, QUESTION])
        prompts.append(asked.prompt())
        asked.post("/api/chat", messages=[{"role": "system", "content": line}, system, QUESTION])
    assert len(set(prompts)) == 1
    assert "You are Claude.\nBe brief." in prompts[0]
    assert "billing" not in asked.prompt()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_file_of_text_is_read(asked: Asked, path: str) -> None:
    text = "Größe: 3\n日本\n"
    data = f"data:text/plain;base64,{base64.b64encode(text.encode()).decode()}"
    file = {"filename": "notes.txt", "file_data": data}
    is_chat = path == "/v1/chat/completions"
    part = {"type": "file", "file": file} if is_chat else {"type": "input_file", **file}
    reply = asked.post(path, **conversation(path, {"role": "user", "content": [part]}))
    assert reply.status_code == 200, reply.text
    assert asked.texts("user") == [f"notes.txt\n\n{text}"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_a_file_that_is_not_base64_is_noted(asked: Asked, path: str) -> None:
    file = {"file_data": "data:text/plain;base64,é"}
    source = {"type": "base64", "media_type": "text/plain", "data": "é"}
    part: dict[str, Any] = {
        "/v1/chat/completions": {"type": "file", "file": file},
        "/v1/responses": {"type": "input_file", **file},
        "/v1/messages": {"type": "document", "source": source},
    }[path]
    said = {"role": "assistant", "content": "Well."}
    turns = conversation(path, {"role": "user", "content": [part]}, said, LATER)
    assert asked.post(path, **turns).status_code == 200
    assert asked.texts("user")[0] == f"[{part['type']} {NOTE}"


SCREEN = {"type": "computer_screenshot", "image_url": PNG}
ACTION = {"type": "exec", "command": ["ls"], "env": {}}
SHELL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": ACTION}
USER = {"type": "user", "id": 5, "name": ["Ada"]}  # no part, whatever its type is
USER_TEXT = '{"type":"user","id":5,"name":["Ada"]}'
MCP = {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "echo"}


@pytest.mark.parametrize(
    ("item", "texts"),
    [
        (SHELL | {"status": "completed"}, ['{"command":["ls"]}']),
        ({"type": "local_shell_call_output", "id": "c", "output": "a.txt"}, ["a.txt"]),
        (
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "n": 1}]},
            ['[{"stdout":"a","n":1}]'],
        ),
        (
            {"type": "computer_call_output", "call_id": "c", "output": SCREEN},
            [f"[computer_screenshot {NOTE}"],
        ),
        (MCP | {"arguments": '{"x":1}', "output": "1"}, ['{"x":1}', "1"]),
        ({"type": "web_search_call", "id": "ws", "status": "x"}, [f"[web_search_call {NOTE}"]),
        ({"type": "compaction", "encrypted_content": "x"}, [f"[compaction {NOTE}"]),
        (
            {"type": "later", "id": 5, "role": ["x"], "content": {}, "summary": 1, "text": []},
            [f"[later {NOTE}"],
        ),
        ({"type": "function_call_output", "call_id": "c", "output": {"a": [1]}}, ['{"a":[1]}']),
        ({"type": "function_call_output", "call_id": "c", "output": USER}, [USER_TEXT]),
        ({"type": "function_call_output", "call_id": "c", "output": [USER]}, [f"[{USER_TEXT}]"]),
        ({"type": "function_call_output", "call_id": "c"}, [""]),
    ],
)
def test_items_of_tools_that_are_not_ours(
    asked: Asked, item: dict[str, Any], texts: list[str]
) -> None:
    reply = asked.post("/v1/responses", input=[QUESTION, item, LATER])
    assert reply.status_code == 200, reply.text
    assert asked.texts() == ["Weather?", *texts, "And now?"]
    listed = reply.json()["id"]
    again = asked.post("/v1/responses", input="More?", previous_response_id=listed)
    assert again.status_code == 200, again.text
    assert asked.texts() == ["Weather?", *texts, "And now?", "Fine.", "More?"]


def test_a_message_says_whether_it_is_the_answer(asked: Asked) -> None:
    """Where an answer was cut off in a preamble, nothing else would say so."""
    said = {"type": "message", "role": "assistant", "content": "I look."}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    asked.post("/v1/responses", input=[QUESTION, thought, said | {"phase": "commentary"}, LATER])
    assert asked.done() == [("analysis", "", "Hm."), ("commentary", "", "I look.")]
    asked.post("/v1/responses", input=[QUESTION, thought, said, LATER])
    assert asked.done() == [("final", "", "I look.")]


def test_a_later_configuration_holds(asked: Asked) -> None:
    update = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    asked.post("/v1/responses", input=[QUESTION, update, LATER])
    assert "Reasoning: high" in asked.prompt()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "count", "schema": schema}
    asked.post("/v1/responses", input=[QUESTION, update | {"text": {"format": form}}, LATER])
    assert "## count" in asked.prompt()


SEARCH = {
    "type": "search_result",
    "source": "https://w.example/oslo",
    "title": "Oslo",
    "content": [{"type": "text", "text": "9 C, "}, {"type": "text", "text": "rain"}],
    "citations": {"enabled": True},
}
DOCUMENT = {
    "type": "document",
    "title": "Report",
    "context": "Of today.",
    "source": {"type": "text", "media_type": "text/plain", "data": "9 C"},
}
BLOCKS = DOCUMENT | {"source": {"type": "content", "content": [{"type": "text", "text": "9 C"}]}}
HELD = DOCUMENT | {"source": {"type": "content", "content": "9 C"}}
READ = "Oslo\nhttps://w.example/oslo\n\n9 C, rain"
REPORT = "Report\n\nOf today.\n\n9 C"


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (SEARCH, READ),
        (DOCUMENT, REPORT),
        (BLOCKS, REPORT),
        (HELD, REPORT),
        ({"type": "later", "what": 5}, f"[later {NOTE}"),
        ({"type": "later", "content": "Summary."}, "Summary."),
    ],
)
def test_anthropics_blocks_are_read_from_users_and_tools(
    asked: Asked, block: dict[str, Any], text: str
) -> None:
    with anthropic.Anthropic(base_url=asked.url, api_key="none") as client:
        ask: Any = {"model": "nano", "max_tokens": 99}
        client.messages.create(**ask, messages=[{"role": "user", "content": [block]}])  # type: ignore[list-item]
        assert asked.texts("user") == [text]
        given: Any = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
        turns: Any = [QUESTION, call("/v1/messages", {}), {"role": "user", "content": [given]}]
        client.messages.create(**ask, messages=turns)
        assert asked.texts("functions.get") == [text]


def test_blocks_stand_apart_from_each_other(asked: Asked) -> None:
    head = {"type": "text", "text": "Read this:"}
    content = [head, DOCUMENT, SEARCH, {"type": "text", "text": "Well?"}]
    body = conversation("/v1/messages", {"role": "user", "content": content})
    assert asked.post("/v1/messages", **body).status_code == 200
    assert asked.texts("user") == [f"Read this:\n\n{REPORT}\n\n{READ}\n\nWell?"]


def test_a_document_that_is_not_text(asked: Asked) -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    block = {"type": "document", "source": pdf}
    refused = asked.post("/v1/messages", max_tokens=9, messages=[QUESTION | {"content": [block]}])
    assert (refused.status_code, "text only" in refused.text) == (400, True)
    given = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
    turns = [QUESTION, call("/v1/messages", {}), {"role": "user", "content": [given]}]
    assert asked.post("/v1/messages", max_tokens=9, messages=turns).status_code == 200
    assert asked.texts("functions.get") == [f"[document {NOTE}"]


def test_a_tool_that_reports_an_error(asked: Asked) -> None:
    given = {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}
    turns = [QUESTION, call("/v1/messages", {}), {"role": "user", "content": [given]}]
    asked.post("/v1/messages", max_tokens=9, messages=turns)
    assert asked.texts("functions.get") == ["[the tool reports an error]\nno"]


@pytest.mark.parametrize(
    ("content", "text"), [(USER, USER_TEXT), ([USER], f"[{USER_TEXT}]"), ([1, 2], "[1,2]")]
)
def test_a_tool_of_anthropics_dialect_that_returns_json(
    asked: Asked, content: Any, text: str
) -> None:
    given = {"type": "tool_result", "tool_use_id": "c", "content": content}
    turns = [QUESTION, call("/v1/messages", {}), {"role": "user", "content": [given]}]
    reply = asked.post("/v1/messages", max_tokens=9, messages=turns)
    assert reply.status_code == 200, reply.text
    assert asked.texts("functions.get") == [text]


def test_tools_that_anthropic_ran(asked: Asked) -> None:
    """Their calls and results stand in one message of the assistant."""
    found = {"type": "web_search_result", "url": "https://a.example", "title": "A"}
    turn = [
        {"type": "thinking", "thinking": "Search.", "signature": "x"},
        {"type": "text", "text": "I search."},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "a"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [found]},
        {"type": "text", "text": "It is A"},
        {"type": "text", "text": ", I say."},
    ]
    body = conversation("/v1/messages", QUESTION, {"role": "assistant", "content": turn}, LATER)
    assert asked.post("/v1/messages", **body).status_code == 200
    assert asked.done() == [
        ("commentary", "", "I search."),
        ("commentary", "functions.web_search", '{"query":"a"}'),
        ("final", "", "It is A, I say."),
    ]
    assert asked.texts("functions.web_search") == [f"[web_search_result {NOTE}"]
