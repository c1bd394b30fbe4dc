"""The tools of a chat: which are declared, asked about, run and ended."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.talk.tools import Arguments, Page, RunnableTool, Toolbox, ToolResult
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.toolbox import FIND_TOOLS, MAX_DECLARED_TOKENS
from tests.tools.own_source import OwnSource

pytestmark = pytest.mark.quick


class Source(OwnSource):
    """Tools that a test has made; they fail as it says."""

    def __init__(self, name: str, *tools: RunnableTool, is_on: bool = True) -> None:
        super().__init__(name, "", {}, is_on=is_on)
        self._tools = [replace(tool, source=name) for tool in tools]


def tool(name: str, description: str = "", result: Any = "done", **fields: Any) -> RunnableTool:
    async def run(arguments: Arguments) -> str | ToolResult:
        if isinstance(result, Exception):
            raise result
        if isinstance(result, float):
            await asyncio.sleep(result)
        return result if isinstance(result, str | ToolResult) else str(dict(arguments))

    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    return RunnableTool(name, description, schema, run, "is a test", "", **fields)


async def prepared(*sources: Source, consents: Consents | None = None) -> Toolbox:
    toolbox = Toolbox(sources, consents or Consents(None))
    await toolbox.prepare()
    return toolbox


def names(toolbox: Toolbox) -> list[str]:
    return [each["function"]["name"] for each in toolbox.declared()]


async def test_sources_are_switched_as_a_whole() -> None:
    toolbox = await prepared(Source("a", tool("a1"), tool("a2")), Source("b", is_on=False))
    assert names(toolbox) == ["a1", "a2"]
    assert toolbox.switch("a") is False
    await toolbox.prepare()
    assert names(toolbox) == []
    assert [(group.name, group.is_on) for group in toolbox.groups()] == [("a", False), ("b", False)]
    with pytest.raises(UsageError, match="there is no tool 'c'"):
        toolbox.switch("c")


async def test_a_source_that_does_not_answer_costs_its_own_tools() -> None:
    broken, well = Source("broken"), Source("well", tool("f"))
    broken.problem = "it does not start"
    toolbox = Toolbox([broken, well], Consents(None))
    assert await toolbox.prepare() == ["broken: it does not start"]
    assert names(toolbox) == ["f"]
    assert await toolbox.prepare() == []  # said once
    assert toolbox.groups()[0].problem == "broken: it does not start"
    broken.problem = ""
    assert await toolbox.prepare() == []
    broken.problem = "it does not start"
    assert await toolbox.prepare() == ["broken: it does not start"]


async def test_what_a_call_comes_to() -> None:
    page = Page(0, "https://a.example/", "A")
    found = ToolResult("text", pages=(page,))
    toolbox = await prepared(
        Source(
            "s",
            tool("ok", result=None),
            tool("page", result=found),
            tool("no", result=UsageError("x must be a number")),
            tool("gone", result=ToolError("the server is gone")),
            tool("broken", result=ZeroDivisionError()),
            tool("late", result=30.0, timeout_s=0.05),
            tool("big", result="a" * 40_000 + "z" * 40_000),
        )
    )
    ok = await toolbox.run("ok", {"x": "1"})
    assert (ok.text, ok.is_error) == ("{'x': '1'}", False)
    assert (await toolbox.run("page", {})).pages == (page,)
    for name, text in {
        "no": "Error: x must be a number",
        "gone": "Error: the server is gone",
        "broken": "Error: internal error, see the log",
        "late": "Error: late took longer than 0.05 s and was stopped",
        'rm "': 'Error: there is no tool "rm \\""; there are ok, page, no, gone, broken, late, big',
    }.items():
        result = await toolbox.run(name, {})
        assert (result.text, result.is_error) == (text, True)
    long = (await toolbox.run("big", {})).text
    assert long.startswith("aaaa")
    assert long.endswith("zzzz")
    assert "[... 47,232 characters left out ...]" in long


async def test_hundreds_of_tools_are_found_by_a_search() -> None:
    about = "Does something that takes many words to say. " * 4
    many = [tool(f"thing_{n}", about) for n in range(300)]
    wanted = tool("createInvoice", "Writes a bill for a customer.")
    toolbox = await prepared(Source("few", tool("f")), Source("many", *many, wanted))
    assert names(toolbox) == ["f", FIND_TOOLS]
    assert len(str(toolbox.declared())) / 4 < MAX_DECLARED_TOKENS
    assert "301 more" in toolbox.declared()[1]["function"]["description"]
    finder = toolbox.tool(FIND_TOOLS)
    assert finder is not None
    assert not toolbox.needs_consent(finder)
    found = await toolbox.run(FIND_TOOLS, {"query": "invoice for a customer"})
    assert "- createInvoice: Writes a bill" in found.text.splitlines()[1]
    assert "createInvoice" in names(toolbox)
    assert len(names(toolbox)) < 10
    assert (await toolbox.run(FIND_TOOLS, {"query": "qqq"})).is_error
    assert (await toolbox.run("thing_7", {})).text == "done"  # guessed, and it is there
    await toolbox.new_chat()
    assert names(toolbox) == ["f", FIND_TOOLS]


async def test_new_chats_forget() -> None:
    source = Source("s", tool("f"))
    toolbox = await prepared(source)
    f = toolbox.tools["f"]
    assert toolbox.needs_consent(f)
    toolbox.allow(f, "chat")
    assert not toolbox.needs_consent(f)
    await toolbox.new_chat([Page(3, "https://a.example", "A")])
    assert toolbox.needs_consent(f)
    assert source.chats == [[Page(3, "https://a.example", "A")]]
    await toolbox.close()
    assert source.n_closed == 1


async def test_a_permission_for_good_ends_when_the_tool_changes(tmp_path: Path) -> None:
    path = tmp_path / "config" / "allowed-tools.json"
    f = tool("f", "Reads.", identity="npx server")
    toolbox = await prepared(Source("s", f), consents=Consents(path))
    toolbox.allow(toolbox.tools["f"], "always")

    async def asks(name: str, changed: RunnableTool) -> bool:
        again = await prepared(Source(name, changed), consents=Consents(path))
        return again.needs_consent(again.tools[changed.name])

    assert not await asks("s", f)
    assert await asks("other", f)
    assert await asks("s", replace(f, name="g"))
    assert await asks("s", replace(f, identity="npx another"))
    assert await asks("s", replace(f, description="Deletes."))
    assert await asks("s", replace(f, parameters={"type": "object"}))
    Consents(path).forget("s")
    assert await asks("s", f)


@pytest.mark.parametrize("change", [("{", ""), ('"allowed"', '"unless": {}, "allowed"')])
async def test_permissions_that_cannot_be_read_are_not_guessed(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    path = tmp_path / "allowed-tools.json"
    toolbox = await prepared(Source("s", tool("f")), consents=Consents(path))
    toolbox.allow(toolbox.tools["f"], "always")
    path.write_text(text := path.read_text().replace(*change, 1))
    toolbox = await prepared(Source("s", tool("f")), consents=Consents(path))
    assert toolbox.needs_consent(toolbox.tools["f"])
    with pytest.raises(UsageError, match="cannot be read"):
        toolbox.allow(toolbox.tools["f"], "always")
    assert path.read_text() == text
