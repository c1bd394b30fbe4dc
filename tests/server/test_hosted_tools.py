"""Tools that the server runs for `/v1/responses`: calls, permissions and limits."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.keys import add_key
from tests.conftest import wait_until
from tests.scripted_engine import Script, answer, calls
from tests.server import well_formed
from tests.server.asked import Asked
from tests.server.served_tools import OSLO, run_tool_server

SEARCH: Any = {"type": "web_search"}
CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
ASKING: Any = {"type": "mcp", "server_label": "notes"}
NOTES: Any = ASKING | {"require_approval": "never"}
ECHO: Any = {"type": "function", "name": "echo", "parameters": {"type": "object", "properties": {}}}
OWNER = "s3cret"
Item = dict[str, Any]


def write_script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say(
        "Weather?",
        calls("browser.search", {"query": "Oslo"}, "I search."),
        calls("browser.open", {"id": 0}, "I open it."),
        answer("It is cold【1†L0-L3】, not warm【7†L1】.", "Clear."),
    )
    script.say("Set", calls("python", {"code": "n = 6 * 7"}, "Compute."), answer("It is set."))
    script.say("Get", calls("python", {"code": "print(n)"}, "Print."), answer("It is 42."))
    script.say("Wait", calls("python", {"code": "wait"}), answer("Over."))
    script.say("Forever", *(calls("python", {"code": f"print({n})"}, "On.") for n in range(9)))
    script.say("The same", calls("python", {"code": "print(1)"}, "Again."))
    script.say("Note", calls("add", {"text": "milk"}, "I add it."), answer("Noted."))
    script.say("Lose", calls("lose", {}), answer("It failed."))
    script.otherwise(answer("Well."))
    return script


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hosted") / "log"
    path.touch()
    return path


@pytest.fixture(scope="module")
def keys(log: Path) -> dict[str, str]:
    file = log.with_name("keys.toml")
    tools = {"ada": ["code_interpreter", "mcp:notes:*"], "eve": [], "zoe": ["mcp:notes:add"]}
    return {name: add_key(file, name, tools=has) for name, has in tools.items()} | {"owner": OWNER}


@pytest.fixture(scope="module")
def asked(
    nano_home: Path, vocabulary: Vocabulary, log: Path, keys: dict[str, str]
) -> Iterator[Asked]:
    script, file = write_script(vocabulary), log.with_name("keys.toml")
    settings = {"api_keys_file": str(file), "api_key": OWNER, "tool_rounds": "3"}
    settings["api_tools"] = "web_search, code_interpreter,mcp"
    with run_tool_server(nano_home, script, log=log, **settings) as server:
        yield Asked(server.url, script, vocabulary)


Clients = Callable[[str], openai.OpenAI]


@pytest.fixture(scope="module")
def by(asked: Asked, keys: dict[str, str]) -> Clients:
    """Make clients by the names of their keys; they check the type of every answer."""
    checked: Any = {"max_retries": 0, "_strict_response_validation": True}
    url = f"{asked.url}/v1"
    return lambda name: openai.OpenAI(base_url=url, api_key=keys[name], **checked)


@pytest.fixture
def owner(by: Clients) -> openai.OpenAI:
    return by("owner")


def ask(client: openai.OpenAI, question: Any, **fields: Any) -> Any:
    return client.responses.create(model="nano", input=question, **fields)


def kinds(made: Any) -> list[str]:
    return [item.type for item in made.output if item.type != "reasoning"]


def item(made: Any, kind: str) -> Any:
    return next(each for each in made.output if each.type == kind)


def results(asked: Asked, name: str) -> list[str]:
    """Return the results of a tool in the last prompt, a function or built in."""
    return [p.text for p in asked.pieces() if p.author in (name, f"functions.{name}")]


def sent_back(made: Any) -> list[Any]:
    return [each.model_dump(exclude_none=True) for each in made.output]


def n_added(log: Path) -> int:
    return log.read_text().count("added ")


@pytest.mark.quick
def test_the_model_searches_opens_and_cites(asked: Asked, owner: openai.OpenAI) -> None:
    n_before = len(asked.prompts)
    made = ask(owner, "Weather?", tools=[SEARCH])
    assert kinds(made) == ["web_search_call", "web_search_call", "message"]
    search, page = (each.action for each in made.output if each.type == "web_search_call")
    assert (search.type, search.query) == ("search", "Oslo")
    assert (page.type, page.url) == ("open_page", OSLO)
    (text,) = made.output[-1].content
    (cited,) = text.annotations
    assert (cited.type, cited.url, cited.title) == ("url_citation", OSLO, "Weather in Oslo")
    assert text.text[cited.start_index : cited.end_index] == "【1†L0-L3】"
    assert made.usage.input_tokens == sum(map(len, asked.prompts[n_before:]))


def test_streams_are_well_formed(asked: Asked) -> None:
    headers = {"authorization": f"Bearer {OWNER}"}
    for question, tool, seen in (
        ("Weather?", SEARCH, "web_search_call.searching"),
        ("Set", CODE, "code_interpreter_call_code.done"),
        ("Note", NOTES, "mcp_call.completed"),
        ("Lose", NOTES, "mcp_call.failed"),
        ("Note", NOTES, "mcp_list_tools.completed"),
    ):
        body = {"model": "nano", "input": question, "stream": True, "tools": [tool]}
        text = httpx.post(f"{asked.url}/v1/responses", json=body, headers=headers, timeout=300).text
        well_formed.check_stream("/v1/responses", text)
        assert f"event: response.{seen}\n" in text


def test_code_keeps_its_state_in_a_conversation_of_its_key(asked: Asked, by: Clients) -> None:
    first = ask(by("ada"), "Set", tools=[CODE])
    call = item(first, "code_interpreter_call")
    assert (call.code, call.status) == ("n = 6 * 7", "completed")
    ask(by("ada"), "Get", tools=[CODE], previous_response_id=first.id)
    assert results(asked, "python") == ["42\n"]
    named = CODE | {"container": call.container_id}
    with pytest.raises(openai.BadRequestError, match="not found"):
        ask(by("owner"), "Get", tools=[named])
    ask(by("owner"), [*sent_back(first), {"role": "user", "content": "Get"}], tools=[CODE])
    assert "not defined" in results(asked, "python")[-1]


def test_a_call_of_an_mcp_server_runs_for_a_key_that_names_it(
    asked: Asked, by: Clients, log: Path
) -> None:
    before = n_added(log)
    made = ask(by("ada"), "Note", tools=[NOTES])
    assert kinds(made) == ["mcp_list_tools", "mcp_call", "message"]
    assert item(made, "mcp_call").output == "added milk"
    ask(by("ada"), "Next", tools=[NOTES], previous_response_id=made.id)
    assert results(asked, "add") == ["added milk"]
    assert n_added(log) == before + 1


@pytest.mark.parametrize("approval", [None, "always", {"never": {"tool_names": ["add"]}}])
def test_a_server_whose_calls_want_approval_is_refused(
    by: Clients, log: Path, approval: Any
) -> None:
    """No item carries an approval, so nothing waits for one, and nothing runs without it."""
    before = n_added(log)
    tool = ASKING | ({"require_approval": approval} if approval else {})
    for name in ("ada", "owner"):
        with pytest.raises(openai.BadRequestError, match="'notes' run without approval"):
            ask(by(name), "Note", tools=[tool])
    reply = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    with pytest.raises(openai.BadRequestError, match="mcp_approval_response"):
        ask(by("owner"), [{"role": "user", "content": "Note"}, reply], tools=[NOTES])
    assert n_added(log) == before


@pytest.mark.parametrize(
    ("key", "tool", "name"),
    [
        ("eve", SEARCH, "web_search"),
        ("eve", CODE, "code_interpreter"),
        ("eve", ASKING | {"server_label": "nowhere"}, "mcp:nowhere"),
        ("zoe", NOTES | {"server_label": "broken"}, "mcp:broken"),
        ("zoe", NOTES | {"allowed_tools": {"tool_names": ["lose"]}}, "mcp:notes:lose"),
    ],
)
def test_a_tool_that_is_not_stated_for_a_key_is_refused(
    by: Clients, key: str, tool: Any, name: str
) -> None:
    """Though GPTOSS_API_TOOLS has most of them."""
    with pytest.raises(openai.PermissionDeniedError, match=f"'{key}' may not use {name}"):
        ask(by(key), "Hi", tools=[tool])
    listed = item(ask(by("zoe"), "Hi", tools=[NOTES]), "mcp_list_tools")
    assert [each.name for each in listed.tools] == ["add"]


def test_without_the_setting_tools_are_skipped_and_servers_need_their_names(
    nano_home: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    (tmp_path / "log").touch()
    for tools, status, said in (
        ("mcp", 403, "run without approval"),
        ("mcp:notes:*", 200, "mcp_call"),
    ):
        script = write_script(vocabulary)
        with run_tool_server(nano_home, script, log=tmp_path / "log", api_tools=tools) as server:
            bare = Asked(server.url, script, vocabulary)
            made = bare.post("/v1/responses", input="Note", tools=[NOTES])
            assert (made.status_code, said in made.text) == (status, True)
            made = bare.post("/v1/responses", input="Hi", tools=[CODE, SEARCH, ECHO])
            assert [each["type"] for each in made.json()["output"]] == ["message"]
            assert not {"python", "search"} & set(bare.prompt().split())


def test_a_loop_ends_at_its_limit_and_with_its_client(owner: openai.OpenAI, log: Path) -> None:
    for question, n_run in (("Forever", 3), ("The same", 2)):
        made = ask(owner, question, tools=[CODE])
        assert kinds(made) == ["code_interpreter_call"] * n_run
        assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_messages")
    with owner.responses.create(model="nano", input="Wait", tools=[CODE], stream=True) as events:
        next(e for e in events if e.type == "response.code_interpreter_call.interpreting")
        wait_until(lambda: "waits" in log.read_text())
    wait_until(lambda: "ended" in log.read_text())


def test_a_request_cannot_bring_a_server_of_its_own(owner: openai.OpenAI) -> None:
    for tool, text in (
        ({"type": "mcp", "server_label": "python"}, "there is no MCP server 'python'"),
        (NOTES | {"server_url": "https://evil.example/mcp"}, "is not at https://evil.example/mcp"),
        (NOTES | {"authorization": "secret"}, "authorization of the MCP server 'notes'"),
    ):
        with pytest.raises(openai.BadRequestError, match=text):
            ask(owner, "Hi", tools=[tool])
