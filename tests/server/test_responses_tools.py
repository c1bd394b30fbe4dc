"""Tools that the server runs for `/v1/responses`, through the real `openai` SDK."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.dialects.openai.responses_hosted_items import KINDS
from tests.conftest import wait_until
from tests.scripted_engine import Script, answer, calls
from tests.server import sse, well_formed
from tests.server.asked import Asked
from tests.server.served_tools import ADDRESS, OSLO, run_tool_server

SEARCH: Any = {"type": "web_search"}
CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
NOTES: Any = {"type": "mcp", "server_label": "notes", "require_approval": "never"}
ECHO: Any = {"type": "function", "name": "echo", "parameters": {"type": "object", "properties": {}}}
BOTH = '<|end|><|start|>assistant<|channel|>commentary to=functions.echo<|message|>{"a":1}<|call|>'
STREAMED = pytest.mark.parametrize("streamed", [False, True])


def write_script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say(
        "Weather?",
        calls("browser.search", {"query": "Oslo"}, "I search."),
        calls("browser.open", {"id": 0}, "I open it."),
        calls("browser.find", {"pattern": "9"}, "I look."),
        answer("It is cold【1†L0-L3】, not warm【7†L1】.", "Clear."),
    )
    script.say("Lost?", calls("browser.open", {"id": "nowhere"}), answer("It is lost."))
    script.say("Set", calls("python", {"code": "n = 6 * 7"}, "Compute."), answer("It is set."))
    script.say("Get", calls("python", {"code": "print(n)"}, "Print."), answer("It is 42."))
    script.say("Wait", calls("python", {"code": "wait"}), answer("Over."))
    script.say("Raise", calls("python", {"code": "raise"}), answer("It raised."))
    script.say("Refuse", calls("python", {"code": "refuse"}), answer("It did not run."))
    again = calls("python", {"code": "print(1)"}, "Again.")
    script.say("Twice", again, again, answer("Twice."))
    script.say("Forever", again)
    script.say("Note", calls("add", {"text": "milk"}, "I add it."), answer("Noted."))
    script.say("Lose", calls("lose", {}), answer("It failed."))
    mixed = calls("python", {"code": "print('ours')"}, "Both.")
    mixed.text = mixed.text.replace("<|call|>", BOTH)
    script.say("Mixed", mixed, answer("One result."), answer("Both results."))
    script.otherwise(answer("Well."))
    return script


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "log"


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary, log: Path) -> Iterator[Asked]:
    script = write_script(vocabulary)
    allowed = "web_search, code_interpreter,mcp,mcp:notes:*,mcp:broken:*"
    with run_tool_server(nano_home, script, log=log, api_tools=allowed, tool_rounds="3") as server:
        yield Asked(server.url, script, vocabulary)


@pytest.fixture
def client(asked: Asked) -> Iterator[openai.OpenAI]:
    """One that checks every answer and event against its types."""
    with openai.OpenAI(
        base_url=f"{asked.url}/v1", api_key="k", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


def ask(client: openai.OpenAI, question: Any, *, streamed: bool = False, **fields: Any) -> Any:
    """Return the response, streamed or not."""
    whole: Any = {"model": "nano", "input": question} | fields
    if not streamed:
        return client.responses.create(**whole)
    events: list[Any] = list(client.responses.create(**whole, stream=True))
    return events[-1].response


def names(asked: Asked, question: Any, **fields: Any) -> list[str]:
    """Return the names of the events of a well-formed stream, deltas of text left out."""
    body = {"model": "nano", "input": question, "stream": True} | fields
    text = httpx.post(f"{asked.url}/v1/responses", json=body, timeout=300, trust_env=False).text
    well_formed.check_stream("/v1/responses", text)
    found = [name.removeprefix("response.") for name, _ in sse.events(text)]
    return [n for n in found if "reasoning" not in n and n != "output_text.delta"]


def kinds(made: Any) -> list[str]:
    return [item.type for item in made.output if item.type != "reasoning"]


def item(made: Any, kind: str) -> Any:
    return next(each for each in made.output if each.type == kind)


def results(asked: Asked, name: str) -> list[str]:
    """Return the results of a tool in the last prompt, a function or built in."""
    return [p.text for p in asked.pieces() if p.author in (name, f"functions.{name}")]


def sent_back(made: Any) -> list[Any]:
    return [each.model_dump(exclude_none=True) for each in made.output]


@STREAMED
def test_the_model_searches_opens_and_cites(
    asked: Asked, client: openai.OpenAI, streamed: bool
) -> None:
    n_before = len(asked.prompts)
    made = ask(client, "Weather?", streamed=streamed, tools=[SEARCH])
    assert [each.type for each in made.output] == [
        *("reasoning", "web_search_call") * 3,
        *("reasoning", "message"),
    ]
    search, page, found = (each for each in made.output if each.type == "web_search_call")
    assert {each.status for each in (search, page, found)} == {"completed"}
    assert (search.action.type, search.action.query) == ("search", "Oslo")
    assert (page.action.type, page.action.url) == ("open_page", OSLO)
    assert (found.action.type, found.action.pattern, found.action.url) == (
        *("find_in_page", "9"),
        OSLO,
    )
    (text,) = made.output[-1].content
    assert text.text == "It is cold【1†L0-L3】, not warm【7†L1】."
    (cited,) = text.annotations
    assert (cited.type, cited.url, cited.title) == ("url_citation", OSLO, "Weather in Oslo")
    assert text.text[cited.start_index : cited.end_index] == "【1†L0-L3】"
    prompts = asked.prompts[n_before:]
    assert made.usage.input_tokens == sum(map(len, prompts))
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    assert made.usage.output_tokens_details.reasoning_tokens > 6
    for before, after in itertools.pairwise(prompts):
        assert after[: len(before)] == before  # so the engine computes none of it again


def test_events_of_a_search(asked: Asked) -> None:
    assert names(asked, "Weather?", tools=[SEARCH]) == [
        *("created", "in_progress", *("output_item.added", "output_item.done")),
        *(
            *("output_item.added", "web_search_call.in_progress", "web_search_call.searching"),
            *("web_search_call.completed", "output_item.done"),
            *("output_item.added", "output_item.done"),
        )
        * 3,
        *("output_item.added", "content_part.added", "output_text.annotation.added"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]


def test_a_page_is_named_before_it_is_opened(client: openai.OpenAI) -> None:
    events = client.responses.create(model="nano", input="Weather?", tools=[SEARCH], stream=True)
    added = [event.item for event in events if event.type == "response.output_item.added"]
    actions = [each.action for each in added if each.type == "web_search_call"]
    assert [each.url for each in actions if each.type == "open_page"] == [OSLO]


def test_a_page_that_does_not_open(asked: Asked, client: openai.OpenAI) -> None:
    made = ask(client, "Lost?", tools=[{"type": "web_search_preview"}])
    assert item(made, "web_search_call").status == "failed"
    assert made.output_text == "It is lost."
    assert "there is no such page" in asked.prompt()


@STREAMED
def test_code_keeps_its_state_in_a_conversation(
    asked: Asked, client: openai.OpenAI, streamed: bool
) -> None:
    shown: Any = {"include": ["code_interpreter_call.outputs"], "tools": [CODE]}
    first = ask(client, "Set", streamed=streamed, **shown)
    call = item(first, "code_interpreter_call")
    assert (call.code, call.status) == ("n = 6 * 7", "completed")
    second = ask(client, "Get", streamed=streamed, previous_response_id=first.id, **shown)
    printed = item(second, "code_interpreter_call")
    assert [each.logs for each in printed.outputs] == ["42\n"]
    assert printed.container_id == call.container_id
    named = CODE | {"container": call.container_id}
    third = ask(client, "Get", tools=[named])
    assert item(third, "code_interpreter_call").outputs is None
    assert results(asked, "python") == ["42\n"]
    other = item(ask(client, "Get", **shown), "code_interpreter_call")
    assert other.outputs[0].logs == "name 'n' is not defined\n"
    assert other.container_id != call.container_id


def test_code_that_fails_has_run(client: openai.OpenAI) -> None:
    made = ask(client, "Raise", tools=[CODE], include=["code_interpreter_call.outputs"])
    call = item(made, "code_interpreter_call")
    assert (call.status, call.outputs[0].logs) == ("completed", "Traceback: no")
    call = item(ask(client, "Refuse", tools=[CODE]), "code_interpreter_call")
    assert (call.status, call.code) == ("failed", "refuse")


def test_events_of_code(asked: Asked) -> None:
    assert names(asked, "Set", tools=[CODE])[2:] == [
        *("output_item.added", "output_item.done"),
        *("output_item.added", "code_interpreter_call.in_progress"),
        *("code_interpreter_call_code.delta", "code_interpreter_call_code.done"),
        *("code_interpreter_call.interpreting", "code_interpreter_call.completed"),
        "output_item.done",
        *("output_item.added", "content_part.added", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ]


@pytest.mark.parametrize(
    ("question", "tools"), [("Weather?", [SEARCH]), ("Set", [CODE]), ("Note", [NOTES])]
)
def test_items_come_back_as_the_model_wrote_them(
    asked: Asked, client: openai.OpenAI, question: str, tools: list[Any]
) -> None:
    """Without a store as with one, also where an item has no place for the result."""
    first = ask(client, question, tools=tools)
    last = asked.prompts[-1]
    items = [{"role": "user", "content": question}, *sent_back(first)]
    n_said = 2 if first.output[-2].type == "reasoning" else 1
    ask(client, items[:-n_said], tools=tools, store=False)
    assert asked.prompts[-1] == last
    ask(client, "And now?", tools=tools, previous_response_id=first.id)
    prompt = asked.prompts[-1]
    items.append({"role": "user", "content": "And now?"})
    ask(client, items, tools=tools, store=False)
    assert asked.prompts[-1] == prompt


def test_code_of_another_server_is_read_as_far_as_it_goes(asked: Asked) -> None:
    call = {"type": "code_interpreter_call", "id": "ci_x", "container_id": "c", "status": "x"}
    user = {"role": "user", "content": "Hi"}
    shown = call | {"code": "f()", "outputs": [{"type": "logs", "logs": "9"}, {"type": "image"}]}
    for sent, result in ((shown, "9\n[image left out"), (call | {"code": "f()"}, "[output left")):
        asked.post("/v1/responses", input=[user, sent, user])
        assert ["f()" in text for _, name, text in asked.done() if name] == [True]
        assert results(asked, "python")[0].startswith(result)
    asked.post("/v1/responses", input=[user, call, user])
    assert "code_interpreter_call left out" in asked.prompt()


@STREAMED
def test_a_server_of_the_user(asked: Asked, client: openai.OpenAI, streamed: bool) -> None:
    made = ask(client, "Note", streamed=streamed, tools=[NOTES | {"server_url": ADDRESS}])
    assert kinds(made) == ["mcp_list_tools", "mcp_call", "message"]
    listed, call = made.output[0], item(made, "mcp_call")
    assert [(each.name, each.description) for each in listed.tools] == [
        ("add", "The add."),
        ("lose", "The lose."),
    ]
    assert (call.server_label, call.name, json.loads(call.arguments)) == (
        *("notes", "add"),
        {"text": "milk"},
    )
    assert (call.status, call.output, call.error) == ("completed", "added milk", None)
    again = ask(client, "Lose", tools=[NOTES], previous_response_id=made.id)
    assert kinds(again) == ["mcp_call", "message"]
    call = item(again, "mcp_call")
    assert (call.status, call.output) == ("failed", None)
    assert call.error.content == [{"type": "text", "text": "the note is lost"}]


def test_events_of_a_server(asked: Asked) -> None:
    called = ["output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta",
              "mcp_call_arguments.done"]  # fmt: skip
    said = ["output_item.added", "content_part.added", "output_text.done", "content_part.done",
            "output_item.done", "completed"]  # fmt: skip
    listed = ["output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed",
              "output_item.done"]  # fmt: skip
    seen = names(asked, "Lose", tools=[NOTES])[2:]
    assert seen == [*listed, *called, "mcp_call.failed", "output_item.done", *said]
    seen = names(asked, "Note", tools=[NOTES])[8:]
    assert seen == [*called, "mcp_call.completed", "output_item.done", *said]
    broken = NOTES | {"server_label": "broken"}
    assert names(asked, "Hi", tools=[broken])[3:6] == [
        *("mcp_list_tools.in_progress", "mcp_list_tools.failed", "output_item.done")
    ]


@pytest.mark.parametrize("allowed", [["lose"], {"tool_names": ["lose"]}])
def test_only_the_tools_that_a_request_allows(
    asked: Asked, client: openai.OpenAI, allowed: Any
) -> None:
    made = ask(client, "Hi", tools=[NOTES | {"allowed_tools": allowed}])
    assert [each.name for each in made.output[0].tools] == ["lose"]
    assert "The lose." in asked.prompt()
    assert "The add." not in asked.prompt()


def test_a_server_that_does_not_answer(client: openai.OpenAI) -> None:
    broken = NOTES | {"server_label": "broken"}
    made = ask(client, "Note", tools=[broken, NOTES])
    lists = [each for each in made.output if each.type == "mcp_list_tools"]
    assert [(each.server_label, each.error) for each in lists] == [
        ("broken", "broken: it does not answer"),
        ("notes", None),
    ]
    assert made.output_text == "Noted."


ASKING = [
    {},
    {"require_approval": "always"},
    {"require_approval": {"never": {"tool_names": ["lose"]}}},
    {"require_approval": {"never": {"read_only": True, "tool_names": ["add"]}}},
    {"require_approval": {"always": {"tool_names": ["add"]}, "never": {"tool_names": ["add"]}}},
]


@STREAMED
@pytest.mark.parametrize("asking", ASKING)
def test_a_call_waits_for_approval(
    asked: Asked, client: openai.OpenAI, log: Path, asking: Any, streamed: bool
) -> None:
    tool = {"type": "mcp", "server_label": "notes"} | asking
    n_before = log.read_text().count("added milk") if log.exists() else 0
    first = ask(client, "Note", streamed=streamed, tools=[tool])
    assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
    assert first.status == "completed"
    request = item(first, "mcp_approval_request")
    assert (request.server_label, request.name) == ("notes", "add")
    assert json.loads(request.arguments) == {"text": "milk"}
    assert (log.read_text().count("added milk") if log.exists() else 0) == n_before
    prompt = asked.prompts[-1]
    yes: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    second = ask(client, [yes], streamed=streamed, tools=[tool], previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message"]
    call = item(second, "mcp_call")
    assert (call.approval_request_id, call.output) == (request.id, "added milk")
    assert log.read_text().count("added milk") == n_before + 1
    assert asked.prompts[-1][: len(prompt)] == prompt
    third = ask(client, "Next", tools=[tool], previous_response_id=second.id)
    assert kinds(third) == ["message"]
    assert log.read_text().count("added milk") == n_before + 1
    assert results(asked, "add") == ["added milk"]


def test_approval_without_a_store(asked: Asked, client: openai.OpenAI) -> None:
    tool = {"type": "mcp", "server_label": "notes"}
    items: list[Any] = [{"role": "user", "content": "Note"}]
    first = ask(client, items, tools=[tool], store=False)
    items += sent_back(first)
    request_id = item(first, "mcp_approval_request").id
    answer = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": True}
    items.append(answer)
    second = ask(client, items, tools=[tool], store=False)
    assert item(second, "mcp_call").output == "added milk"
    items += [*sent_back(second), {"role": "user", "content": "Next"}]
    ask(client, items, tools=[tool], store=False)
    assert results(asked, "add") == ["added milk"]


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([{"approve": False, "reason": "No milk."}], "Error: the user denied this call. No milk."),
        ([], "Error: the user did not approve this call."),
    ],
)
def test_a_call_that_is_not_approved(
    asked: Asked, client: openai.OpenAI, log: Path, items: list[Any], told: str
) -> None:
    tool = {"type": "mcp", "server_label": "notes"}
    first = ask(client, "Note", tools=[tool])
    n_before = log.read_text().count("added milk") if log.exists() else 0
    request_id = item(first, "mcp_approval_request").id
    answered = {"type": "mcp_approval_response", "approval_request_id": request_id}
    sent = [answered | each for each in items] or "Well?"
    made = ask(client, sent, tools=[tool], previous_response_id=first.id)
    assert kinds(made) == ["message"]
    assert results(asked, "add") == [told]
    assert (log.read_text().count("added milk") if log.exists() else 0) == n_before


def test_of_two_entries_for_a_server_the_first_counts(client: openai.OpenAI) -> None:
    made = ask(client, "Note", tools=[{"type": "mcp", "server_label": "notes"}, NOTES])
    assert kinds(made)[-1] == "mcp_approval_request"


def test_an_approved_call_is_one_of_the_most_calls(
    asked: Asked, client: openai.OpenAI, log: Path
) -> None:
    tool = {"type": "mcp", "server_label": "notes"}
    first = ask(client, "Note", tools=[tool])
    n_before = log.read_text().count("added milk") if log.exists() else 0
    request_id = item(first, "mcp_approval_request").id
    yes = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": True}
    made = ask(client, [yes], tools=[tool], previous_response_id=first.id, max_tool_calls=0)
    assert kinds(made) == ["message"]
    assert "may not have more calls" in results(asked, "add")[-1]
    assert (log.read_text().count("added milk") if log.exists() else 0) == n_before


def test_the_clients_calls_are_handed_out(asked: Asked, client: openai.OpenAI) -> None:
    made = ask(client, "Mixed", tools=[CODE, ECHO])
    assert sorted(kinds(made)) == ["code_interpreter_call", "function_call"]
    call = item(made, "function_call")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "theirs"}
    after = ask(client, [output], tools=[CODE, ECHO], previous_response_id=made.id)
    assert after.output_text == "Both results."
    assert results(asked, "python") == ["ours\n"]
    assert results(asked, "echo") == ["theirs"]


def test_a_function_of_the_clients_that_has_the_name_of_ours(
    asked: Asked, client: openai.OpenAI
) -> None:
    own = ECHO | {"name": "python", "description": "The client's."}
    made = ask(client, "Set", tools=[own, CODE])
    assert kinds(made) == ["code_interpreter_call", "message"]
    assert "type python_2 = " in asked.prompt()


def test_a_loop_ends(client: openai.OpenAI) -> None:
    made = ask(client, "Forever", tools=[CODE])
    assert kinds(made) == ["code_interpreter_call"] * 3
    assert made.status == "incomplete"
    assert made.incomplete_details.reason == "max_messages"
    assert client.responses.retrieve(made.id).status == "incomplete"


def test_the_token_limit_is_that_of_all_answers(asked: Asked, client: openai.OpenAI) -> None:
    whole = ask(client, "Twice", tools=[CODE])
    n_tokens = whole.usage.output_tokens - 3
    made = ask(client, "Twice", tools=[CODE], max_output_tokens=n_tokens)
    assert made.usage.output_tokens == n_tokens
    assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert kinds(made)[:2] == ["code_interpreter_call"] * 2


def test_stop_ends_the_tool(asked: Asked, log: Path) -> None:
    body = {"model": "nano", "input": "Wait", "tools": [CODE], "stream": True}
    with httpx.stream("POST", f"{asked.url}/v1/responses", json=body, timeout=300) as reply:
        for line in reply.iter_lines():
            if "code_interpreter_call.interpreting" in line:
                break
        wait_until(lambda: "waits" in log.read_text(), timeout_s=30)
    wait_until(lambda: "ended" in log.read_text(), timeout_s=30)


def test_what_is_on_in_chats_is_not_on_for_requests(asked: Asked, log: Path) -> None:
    asked.post("/v1/responses", input="Hi", tools=[CODE, NOTES])
    assert "read_file" not in asked.prompt()
    assert not log.exists() or "asked for read_file" not in log.read_text()


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ({"type": "mcp", "server_label": "nowhere"}, "gptoss tools add"),
        ({"type": "mcp"}, "there is no MCP server ''"),
        ({"type": "mcp", "server_label": "python"}, "there is no MCP server 'python'"),
        ({"type": "mcp", "server_label": "read_file"}, "there is no MCP server 'read_file'"),
        (NOTES | {"server_url": "https://evil.example/mcp"}, "is not at https://evil.example/mcp"),
        (NOTES | {"authorization": "secret"}, "authorization of the MCP server 'notes'"),
        (NOTES | {"allowed_tools": {"read_only": True}}, "read_only"),
        (NOTES | {"allowed_tools": 5}, "allowed_tools"),
        (NOTES | {"require_approval": "sometimes"}, "require_approval"),
        (CODE | {"container": "cntr_x"}, "container 'cntr_x' not found"),
        (CODE | {"container": {"type": "auto", "file_ids": ["f"]}}, "file_ids"),
        (SEARCH | {"filters": {"allowed_domains": ["a.example"]}}, "filters"),
    ],
)
def test_what_cannot_hold_is_refused(asked: Asked, tool: Any, text: str) -> None:
    refused = asked.post("/v1/responses", input="Hi", tools=[tool])
    assert refused.status_code == 400, refused.text
    assert text in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ({"type": "code_interpreter"}, "code_interpreter_call"),
        ({"type": "mcp", "server_label": "notes"}, "message"),
        ({"type": "mcp", "server_label": "notes", "name": "add"}, "message"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [CODE]}, "code_interpreter_call"),
    ],
)
def test_a_choice_may_name_a_tool_of_the_server(asked: Asked, choice: Any, called: str) -> None:
    question = "Set" if called.startswith("code") else "Hi"
    made = asked.post("/v1/responses", input=question, tools=[CODE, NOTES], tool_choice=choice)
    assert made.status_code == 200, made.text
    assert called in [each["type"] for each in made.json()["output"]]


def test_a_length_counts_the_tools(asked: Asked) -> None:
    body: dict[str, Any] = {"model": "nano", "input": "Hi"}
    path = f"{asked.url}/v1/responses/input_tokens"
    with_tools = httpx.post(path, json=body | {"tools": [NOTES]}, timeout=300).json()
    assert asked.post("/v1/responses", input="Hi", tools=[NOTES]).status_code == 200
    assert with_tools["input_tokens"] == len(asked.prompts[-1])


@pytest.fixture(scope="module")
def bare(nano_home: Path, vocabulary: Vocabulary, log: Path) -> Iterator[Asked]:
    script = write_script(vocabulary)
    with run_tool_server(nano_home, script, log=log, api_tools="web_search") as server:
        yield Asked(server.url, script, vocabulary)


@pytest.mark.parametrize(
    "tool", [CODE, NOTES, {"type": "mcp", "server_label": "x", "server_url": "https://x"}]
)
def test_without_the_setting_a_tool_is_skipped(bare: Asked, tool: Any) -> None:
    made = bare.post("/v1/responses", input="Hi", tools=[tool, ECHO])
    assert made.status_code == 200, made.text
    assert [each["type"] for each in made.json()["output"]] == ["message"]
    assert "python" not in bare.prompt()
    assert "The add." not in bare.prompt()


def test_without_the_setting_a_choice_of_one_is_refused(bare: Asked) -> None:
    choice = {"type": "code_interpreter"}
    made = bare.post("/v1/responses", input="Hi", tools=[CODE], tool_choice=choice)
    assert made.status_code == 400
    assert "GPTOSS_API_TOOLS" in made.json()["error"]["message"]


def test_a_search_without_the_web_is_skipped(bare: Asked) -> None:
    """As Codex asks for by default."""
    for access, is_offered in ((False, False), (True, True)):
        tool = SEARCH | {"external_web_access": access}
        assert bare.post("/v1/responses", input="Hi", tools=[tool]).status_code == 200
        assert ("search" in bare.prompt()) == is_offered


ODD: list[Any] = [5, None, "", "x", [], [1], {}, {"a": 1}, True]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_items_of_any_shape_are_no_errors_of_the_server(asked: Asked, kind: str) -> None:
    fields = ("id", "approval_request_id", "arguments", "output", "error", "code", "outputs",
              "action", "server_label", "name", "approve", "container_id", "tools")  # fmt: skip
    user = {"role": "user", "content": "Hi"}
    for n, value in enumerate(ODD):
        tools = [NOTES] if n % 2 else []
        for sent in (
            dict.fromkeys(fields, value),
            {name: ODD[(n + i) % len(ODD)] for i, name in enumerate(fields)},
        ):
            made = asked.post(
                "/v1/responses", input=[user, sent | {"type": kind}, user], tools=tools
            )
            is_refused = kind == "mcp_approval_response"
            assert made.status_code in ((200, 400) if is_refused else (200,)), made.text


def test_a_field_of_ours_in_an_item_means_nothing(asked: Asked) -> None:
    for raw in ({"type": "message"}, {"type": "mcp_approval_request", "id": "x"}, {"type": "x"}):
        sent = {"type": "message", "role": "user", "content": "Hi", "raw": raw}
        made = asked.post("/v1/responses", input=[sent], tools=[NOTES])
        assert made.status_code == 200, made.text
        assert asked.texts()[-1] == "Hi"


OF_TOOLS = {
    "web_search": ("filters", "external_web_access"),
    "code_interpreter": ("container",),
    "mcp": ("server_label", "server_url", "allowed_tools", "require_approval", "headers"),
}


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in OF_TOOLS for name in OF_TOOLS[k]])
def test_tools_of_any_shape_are_no_errors_of_the_server(asked: Asked, kind: str, name: str) -> None:
    for value in ODD:
        tool = {"type": kind, "server_label": "notes", name: value}
        made = asked.post("/v1/responses", input="Hi", tools=[tool])
        assert made.status_code in (200, 400), (value, made.text)
