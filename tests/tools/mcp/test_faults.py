"""Servers that misbehave: each is reported and survived, and the others go on."""

import asyncio
import json
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from gptoss_local.talk.tools import Toolbox
from gptoss_local.talk.tools.mcp import connection, messages, server
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


async def test_one_that_ends_at_the_start(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(broken=bad("exit", tmp_path), good=GOOD)
    assert news == [problem(toolbox, "broken")]
    assert "the MCP server 'broken' ended" in news[0]
    assert "ModuleNotFoundError: *** is missing" in news[0]
    assert not problem(toolbox, "good")
    assert (await toolbox.run("add", {"a": 1, "b": 2})).text == "3"


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


@pytest.mark.timing
async def test_one_that_hangs_at_the_start(
    prepared: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "START_TIMEOUT_S", 1.0)
    toolbox, news = await prepared(hangs=bad("hang", tmp_path))
    assert "did not answer within 1 s" in news[0]
    assert not processes_of_servers()
    start_s = time.monotonic()
    assert await toolbox.prepare() == []  # the user knows
    assert time.monotonic() - start_s < 0.9, "the next request does not wait as well"
    assert "did not answer" in problem(toolbox, "hangs")


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
    lags = []

    async def watch() -> None:
        while True:
            start_s = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - start_s)

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(60):
        result = await toolbox.run(call, {})
    watching.cancel()
    assert result.is_error
    assert f"the MCP server 'floods' ended during the call, as it {why}" in result.text
    assert len(lags) > 5, "others were served meanwhile"
    assert await toolbox.prepare() == []  # it is started again
    assert (await toolbox.run("f", {"a": "b"})).text == '{"a": "b"}'


async def test_one_that_floods_at_the_start(
    prepared: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_MAX_IN_WINDOW", 2_000)
    async with asyncio.timeout(25):
        _, news = await prepared(floods=bad("flood-at-start", tmp_path))
    assert "sent more messages than can be read" in news[0]
    assert not processes_of_servers()


async def test_a_few_lines_that_are_no_messages(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(chatty=bad("chatty", tmp_path))
    assert news == []
    assert (await toolbox.run("bytes", {"a": "b"})).text == '{"a": "b"}'
    log = (tmp_path / "log" / "mcp-chatty.log").read_text()
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


async def test_results_out_of_proportion(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("", tmp_path))
    big = await toolbox.run("big", {})
    assert len(big.text) < 40_000
    assert big.text.endswith("yend")
    shape = await toolbox.run("shape", {})
    assert shape.is_error
    assert "answered something that is not MCP" in shape.text
    refused = await toolbox.run("error", {})
    assert refused.text == "Error: a must be ***"


async def test_results_that_the_sdk_does_not_know(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(bad=bad("bom", tmp_path))
    assert news == [], "a byte order mark is skipped"
    assert (await toolbox.run("odd", {})).text == "[video]\nwords\n[image]\n[content of no kind]"
    assert (await toolbox.run("batch", {})).text == "in a batch"


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


@pytest.mark.timing
async def test_a_server_that_dies_again_and_again(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(dies=bad("dies-at-list", tmp_path))
    assert "ended. Its log ends with: no database" in news[0]
    start_s = time.monotonic()
    for _ in range(20):
        assert await toolbox.prepare() == []
    assert time.monotonic() - start_s < 10
    assert "no database" in problem(toolbox, "dies")


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


async def test_a_list_with_things_that_are_no_tools(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(bad=bad("no-schema", tmp_path), good=GOOD)
    assert news == []
    assert list(toolbox.tools)[:3] == ["f", "g", "h"]
    assert "add" in toolbox.tools
    log = (tmp_path / "log" / "mcp-bad.log").read_text()
    assert log == "(left out 2 tools without a name)\n"


async def test_no_tools_at_all(prepared: Prepare, tmp_path: Path) -> None:
    servers = {fault: bad(fault, tmp_path) for fault in ("no-tools", "tools-as-text")}
    toolbox, news = await prepared(**servers)
    assert not toolbox.tools
    assert len(news) == 1, "a server may offer other things than tools"
    assert "'tools-as-text' answered something that is not MCP" in news[0]


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


async def test_a_description_that_does_not_end(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("description", tmp_path))
    assert len(toolbox.tools["f"].description) < 4_100
    assert toolbox.tools["f"].description.endswith("[cut]")


async def test_a_result_that_is_not_what_was_promised(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("output-schema", tmp_path))
    result = await toolbox.run("f", {})
    assert result.text == '{"y":1}'


async def test_pages_of_tools(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, news = await prepared(bad=bad("pages", tmp_path))
    assert news == []
    assert len(toolbox.tools) == 500
    assert [tool["function"]["name"] for tool in toolbox.declared()] == ["find_tools"]


async def test_pages_without_end(
    prepared: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_PAGES", 20)
    toolbox, news = await prepared(bad=bad("endless-pages", tmp_path), good=GOOD)
    assert "has a list of tools that does not end" in news[0]
    assert "add" in toolbox.tools


async def test_tools_that_change(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("changes", tmp_path))
    assert list(toolbox.tools) == ["f"]
    await toolbox.run("f", {})
    async with asyncio.timeout(20):
        while "grown" not in toolbox.tools:
            await toolbox.prepare()
    assert list(toolbox.tools) == ["f", "grown"]


async def test_what_we_do_not_offer_is_declined(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("", tmp_path))
    assert (await toolbox.run("ask", {})).text.splitlines() == [
        "sampling/createMessage: Sampling not supported",
        "elicitation/create: Elicitation not supported",
        "roots/list: List roots not supported",
        "no/such: Method not found",
        "ping: ok",
    ]


async def test_a_call_that_is_stopped(prepared: Prepare, tmp_path: Path) -> None:
    toolbox, _ = await prepared(bad=bad("", tmp_path))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await toolbox.run("wait", {})
    file = tmp_path / "cancelled"
    await asyncio.to_thread(wait_until, lambda: file.exists() and file.read_text(), timeout_s=30)
    id_, message = json.loads(file.read_text())
    assert message["method"] == "notifications/cancelled"
    assert message["params"]["requestId"] == id_
    assert (await toolbox.run("f", {})).text == "{}", "the server is still there"


async def test_nothing_is_left_of_it(sources: MakeSources, tmp_path: Path) -> None:
    """Neither one that ignores its end, nor what one has started in a session of its own."""
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
    from gptoss_local.talk.tools.mcp.log import ServerLog

    log = ServerLog(tmp_path, "a/../b", ["abcdef", "abcd"])
    log.write("x abcdefg abcd\n")
    assert log.path.parent == tmp_path
    assert log.path.read_text() == "x ***g ***\n"
    log.path.write_bytes(b"x" * (2**20 + 1))
    ServerLog(tmp_path, "a/../b", []).write("new")
    assert log.path.read_text() == "new\n"
    assert msgspec.json.encode(log.hide("abcd")) == b'"***"'
