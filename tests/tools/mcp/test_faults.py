"""Servers that misbehave: each is reported and survived, and the others continue."""

import asyncio
import json
from pathlib import Path

import msgspec
import psutil
import pytest

from gptoss_local.talk.tools import Toolbox
from gptoss_local.talk.tools.mcp import connection, messages
from tests.conftest import wait_until
from tests.tools.mcp.conftest import GOOD, MakeSources, Prepare, bad


def processes_of_servers() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.status() != psutil.STATUS_ZOMBIE and "_server.py" in str(process.cmdline())
    ]


def problem(toolbox: Toolbox, name: str) -> str:
    return next(group.problem for group in toolbox.groups() if group.name == name)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("exit", "the MCP server 'bad' ended. Its log ends with: ModuleNotFoundError: *** is miss"),
        ("hang", "did not answer within 1 s"),
        ("flood-at-start", "sent more messages than can be read"),
        ("tools-as-text", "'bad' answered something that is not MCP"),
        ("dies-at-list", "ended. Its log ends with: no database"),
        ("endless-pages", "has a list of tools that does not end"),
    ],
)
async def test_one_that_gives_no_tools_is_reported_once(
    prepared: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    """The others continue, and no later request waits for it."""
    monkeypatch.setattr(messages, "_MAX_IN_WINDOW", 2_000)
    monkeypatch.setattr(connection, "MAX_PAGES", 20)
    others = {"good": GOOD}
    if fault == "hang":
        others = {}  # which may need more than a second
        monkeypatch.setattr(connection, "START_TIMEOUT_S", 1.0)
    async with asyncio.timeout(60):
        toolbox, news = await prepared(bad=bad(fault, tmp_path), **others)
    assert len(news) == 1
    assert said in news[0]
    monkeypatch.setattr(connection, "START_TIMEOUT_S", 600.0)
    async with asyncio.timeout(30):
        for _ in range(20):
            assert await toolbox.prepare() == []  # the user knows
    assert problem(toolbox, "bad") == news[0]
    if others:
        assert (await toolbox.run("add", {"a": 1, "b": 2})).text == "3"
        assert not problem(toolbox, "good")
    if fault in ("exit", "hang", "flood-at-start"):
        assert len(processes_of_servers()) == len(others)


async def test_one_that_does_not_exist(prepared: Prepare, tmp_path: Path) -> None:
    gone = {"command": "/no/such/program"}
    nowhere = GOOD | {"cwd": "/no/such/folder"}
    unset = GOOD | {"env": {"A": "${NO_SUCH_VARIABLE}"}}
    toolbox, news = await prepared(gone=gone, nowhere=nowhere, unset=unset)
    assert len(news) == 3
    assert "does not start: No such file or directory: /no/such/program" in news[0]
    assert "does not start: No such file or directory: /no/such/folder" in news[1]
    assert "mcp.json: unset: env.A needs the variable NO_SUCH_VARIABLE" in news[2]
    assert not toolbox.tools


async def test_a_start_that_nobody_waits_for(
    prepared: Prepare, sources: MakeSources, tmp_path: Path
) -> None:
    tools = sources(hangs=bad("hang", tmp_path))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await tools.toolbox().prepare()
    async with asyncio.timeout(20):
        await tools.close()
    assert not processes_of_servers()


@pytest.mark.timing
@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("line", "sent a message of more than 1 MiB"),
        ("flood", "sent more messages than can be read"),
        ("garbage", "sent more messages than can be read"),
    ],
)
async def test_one_that_floods_us(
    prepared: Prepare, tmp_path: Path, call: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGE_BYTES", 2**20)
    monkeypatch.setattr(messages, "_MAX_IN_WINDOW", 2_000)
    toolbox, _ = await prepared(floods=bad("", tmp_path))
    ticks = 0

    async def watch() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(60):
        result = await toolbox.run(call, {})
    watching.cancel()
    assert result.is_error
    assert f"the MCP server 'floods' ended during the call, as it {why}" in result.text
    assert ticks > 5, "others were served meanwhile"
    assert await toolbox.prepare() == []  # it is started again
    assert (await toolbox.run("f", {"a": "b"})).text == '{"a": "b"}'


@pytest.mark.parametrize("fault", ["bom", "chatty"])
async def test_odd_results_and_requests(prepared: Prepare, tmp_path: Path, fault: str) -> None:
    """Also after a byte order mark, or a line that is no message, at the start."""
    toolbox, news = await prepared(bad=bad(fault, tmp_path))
    assert news == []
    for call, text in (
        ("error", "Error: a must be ***"),
        ("odd", "[video]\nwords\n[image]\n[content of no kind]"),
        ("batch", "in a batch"),
        ("bytes", '{"a": "b"}'),
        ("promised", '{"y":1}'),  # not its output schema
        (
            "ask",  # for features that we do not offer
            "sampling/createMessage: Sampling not supported\n"
            "elicitation/create: Elicitation not supported\n"
            "roots/list: List roots not supported\nno/such: Method not found\nping: ok",
        ),
    ):
        assert (await toolbox.run(call, {"a": "b"})).text == text
    big = await toolbox.run("big", {})
    assert len(big.text) < 40_000
    assert big.text.endswith("yend")
    shape = await toolbox.run("shape", {})
    assert shape.is_error
    assert "answered something that is not MCP" in shape.text
    if fault == "chatty":
        log = (tmp_path / "log" / "mcp-bad.log").read_text()
        assert "(not a message of MCP) 'Listening on port 3000'" in log


async def test_much_on_stderr(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(noisy=bad("stderr", tmp_path))
    assert news == []
    assert (await toolbox.run("f", {})).text == "{}"
    log = tmp_path / "log" / "mcp-noisy.log"
    text = log.read_text()
    assert "MY_SECRET_VALUE" not in text
    assert "***" in text
    assert log.stat().st_size < 5 * 2**20
    assert "which is not kept" in text or log.stat().st_size < 4 * 2**20


async def test_a_server_that_dies(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("", tmp_path))
    died, other = await asyncio.gather(toolbox.run("die", {}), toolbox.run("wait", {}))
    assert "ended during the call" in died.text
    assert "out of luck, ***" in died.text
    assert "ended during the call" in other.text
    assert (await toolbox.run("f", {})).text == "{}", "it is started again for the next call"


async def test_a_server_that_dies_between_requests(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(dies=bad("dies-after-list", tmp_path))
    assert news == []
    async with asyncio.timeout(30):
        while "mcp dies" in [task.get_name() for task in asyncio.all_tasks()]:
            await asyncio.sleep(0.01)
    assert await toolbox.prepare() == []
    assert (await toolbox.run("f", {})).text == "{}"


async def test_schemas_that_are_none(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(bad=bad("schemas", tmp_path))
    assert news == []
    assert list(toolbox.tools) == ["good", "text", "empty", "long", "list", "required", "banana"]
    for tool in toolbox.tools.values():
        assert tool.parameters["type"] == "object"
        assert isinstance(tool.parameters["properties"], dict)
        has_note = "schema is not one of an object" in tool.description
        assert has_note == (tool.name in ("text", "list", "required"))
        assert ("schema is too long" in tool.description) == (tool.name == "long")
    assert (await toolbox.run("text", {"a": 1})).text == '{"a": 1}'


async def test_lists_with_odd_tools(prepared: Prepare, tmp_path: Path) -> None:
    faults = ("no-schema", "no-tools", "description")
    toolbox, news = await prepared(**{fault: bad(fault, tmp_path) for fault in faults})
    assert news == [], "a server may offer other things than tools"
    assert list(toolbox.tools) == ["f", "g", "h", "description_f"]
    log = (tmp_path / "log" / "mcp-no-schema.log").read_text()
    assert log == "(left out 2 tools without a name)\n"
    assert len(toolbox.tools["description_f"].description) < 4_100
    assert toolbox.tools["description_f"].description.endswith("[cut]")


async def test_a_call_after_the_end(sources: MakeSources, tmp_path: Path) -> None:
    tools = sources(bad=bad("", tmp_path))
    toolbox = tools.toolbox()
    await toolbox.prepare()
    await tools.close()
    assert (await toolbox.run("f", {})).text == "Error: the MCP server 'bad' was ended"
    assert not processes_of_servers()


async def test_names(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(**{"my server": bad("names", tmp_path)})
    assert news == []
    assert list(toolbox.tools) == [
        *("a_b", "my_server_a_b", "my_server_a_b_2", "_", "n" * 64),
        *(f"my_server_{'n' * 54}", "my_server_find_tools", "tool"),
    ]
    group = toolbox.groups()[-1]
    assert [tool.name for tool in group.tools] == list(toolbox.tools)


async def test_pages_of_tools(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(bad=bad("pages", tmp_path))
    assert news == []
    assert len(toolbox.tools) == 500
    assert [tool["function"]["name"] for tool in toolbox.declared()] == ["find_tools"]


async def test_tools_that_change(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("changes", tmp_path))
    assert list(toolbox.tools) == ["f"]
    await toolbox.run("f", {})
    async with asyncio.timeout(20):
        while "grown" not in toolbox.tools:
            await toolbox.prepare()
    assert list(toolbox.tools) == ["f", "grown"]


async def test_a_tool_that_changes_after_consent_is_asked_about_again(
    prepared: Prepare, tmp_path: Path
) -> None:
    toolbox, _ = await prepared(bad=bad("changes", tmp_path))
    toolbox.allow(toolbox.tools["f"], "always")
    assert (await toolbox.run("f", {})).text == "{}"
    assert (await toolbox.run("f", {})).text == "Error: f has changed meanwhile. Call it again."
    assert (tmp_path / "started-once").read_text() == "x", "it was called once"
    await toolbox.prepare()
    assert toolbox.needs_consent(toolbox.tools["f"])
    assert (await toolbox.run("f", {})).text == "{}"


async def test_a_call_that_is_stopped(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("", tmp_path))
    call = asyncio.create_task(toolbox.run("wait", {}))
    await asyncio.to_thread(wait_until, (tmp_path / "waiting").exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    file = tmp_path / "cancelled"
    await asyncio.to_thread(wait_until, lambda: file.exists() and file.read_text(), timeout_s=30)
    id_, message = json.loads(file.read_text())
    assert message["method"] == "notifications/cancelled"
    assert message["params"]["requestId"] == id_
    assert (await toolbox.run("f", {})).text == "{}", "the server is still there"


async def test_nothing_is_left_of_it(sources: MakeSources, tmp_path: Path) -> None:
    """Neither a server that ignores its end, nor a child in a session of its own."""
    tools = sources(stubborn=bad("stubborn", tmp_path), good=GOOD)
    toolbox = tools.toolbox()
    await toolbox.prepare()
    pids = [int(pid) for pid in (await toolbox.run("spawn", {})).text.split()]
    pids.append(int((tmp_path / "pid").read_text()))
    assert all(map(psutil.pid_exists, pids))
    async with asyncio.timeout(30):
        await tools.close()
    await asyncio.to_thread(wait_until, lambda: not any(map(_is_alive, pids)), timeout_s=30)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_secrets_that_contain_each_other(tmp_path: Path) -> None:
    from gptoss_local.talk.tools.mcp.messages import ServerLog

    log = ServerLog(tmp_path, "a/../b", ["abcdef", "abcd"])
    log.write("x abcdefg abcd\n")
    assert log.path.parent == tmp_path
    assert log.path.read_text() == "x ***g ***\n"
    log.path.write_bytes(b"x" * (2**20 + 1))
    ServerLog(tmp_path, "a/../b", []).write("new")
    assert log.path.read_text() == "new\n"
    assert msgspec.json.encode(log.hide("abcd")) == b'"***"'
