"""What is kept of tools between requests, and for how long."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import ToolRequest
from gptoss_local.server.dialects.openai.tool_memory import (
    HostedTool,
    RememberedCall,
    ToolMemory,
    ToolState,
)
from gptoss_local.talk.tools import Page, RunnableTool, Toolbox
from gptoss_local.talk.tools.consent import Consents


class Quiet:
    name, about, description, is_on = "quiet", "", "", True
    is_mcp = False

    def __init__(self) -> None:
        self.is_closed = False

    async def tools(self) -> Sequence[RunnableTool]:
        return []

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


class Kept:
    """A memory whose toolboxes have one source each."""

    def __init__(self, **limits: float) -> None:
        self.sources: list[Quiet] = []
        self.memory = ToolMemory(self._make, **limits)  # type: ignore[arg-type]

    def _make(self) -> Toolbox:
        self.sources.append(Quiet())
        return Toolbox([self.sources[-1]], Consents(None))

    def new(self, owner: str = "me") -> ToolState:
        return self.memory.new_state(owner)

    @property
    def closed(self) -> list[bool]:
        return [source.is_closed for source in self.sources]

    async def until_closed(self, n: int) -> None:
        async with asyncio.timeout(30):
            while sum(self.closed) < n:
                await asyncio.sleep(0.01)


async def _fail(_arguments: object) -> str:
    raise AssertionError


TOOL = HostedTool(
    "code_interpreter", "", "python", RunnableTool("python", "", {}, _fail, "", "python")
)


def run(text: str | None) -> RememberedCall:
    return RememberedCall(
        ToolRequest("python", {"code": "1"}, "call_1"), TOOL, text, (), "cntr_1", 0
    )


async def test_a_state_is_its_owners() -> None:
    kept = Kept()
    state = kept.new()
    assert kept.memory.state("me", state.container_id) is state
    assert kept.memory.state("other", state.container_id) is None
    kept.memory.runs.put("me", "ci_1", run("1"))
    assert kept.memory.runs.get("me", "ci_1") == run("1")
    assert kept.memory.runs.get("other", "ci_1") is None


async def test_the_least_recently_used_state_is_ended() -> None:
    kept = Kept(n_states_max=2)
    first, second = kept.new(), kept.new()
    with kept.memory.using(first):
        pass
    kept.new()
    await kept.until_closed(1)
    assert kept.closed == [False, True, False]
    assert kept.memory.state("me", second.container_id) is None
    assert kept.memory.state("me", first.container_id) is first


async def test_no_owner_pushes_out_all_states_of_another() -> None:
    kept = Kept(n_states_max=3)
    theirs = kept.new("other")
    for _ in range(5):
        kept.new()
    await kept.until_closed(3)
    assert kept.closed == [False, True, True, True, False, False]
    assert kept.memory.state("other", theirs.container_id) is theirs


async def test_a_call_is_settled_once_by_its_owner() -> None:
    kept = Kept()
    kept.memory.runs.put("me", "mcpr_1", run(None))
    kept.memory.runs.put("me", "mcp_2", run("2"))
    for owner, name in (("other", "mcpr_1"), ("me", "mcp_2"), ("me", "mcpr_3")):
        with pytest.raises(UsageError, match=name):
            kept.memory.settle(owner, name)
    kept.memory.settle("me", "mcpr_1")
    with pytest.raises(UsageError, match="answered before"):
        kept.memory.settle("me", "mcpr_1")


async def test_a_state_that_is_used_is_not_ended() -> None:
    kept = Kept(n_states_max=1, idle_s=0.02)
    with kept.memory.using(kept.new()):
        kept.new()
        await kept.until_closed(1)
        assert kept.closed == [False, True]
    await kept.until_closed(2)


async def test_an_idle_state_is_ended() -> None:
    kept = Kept(idle_s=0.02)
    state = kept.new()
    await kept.until_closed(1)
    assert kept.memory.state("me", state.container_id) is None


async def test_closing_ends_all() -> None:
    kept = Kept()
    with kept.memory.using(kept.new()):
        kept.new()
        await kept.memory.close()
    assert kept.closed == [True, True]


@pytest.mark.parametrize("n_bytes", [100, 10_000])
async def test_calls_are_bounded_by_their_bytes(n_bytes: int) -> None:
    kept = Kept(max_bytes=50_000)
    for n in range(1000):
        kept.memory.runs.put("me", f"ci_{n}", run("x" * n_bytes))
    known = [n for n in range(1000) if kept.memory.runs.get("me", f"ci_{n}")]
    assert known == list(range(1000 - len(known), 1000))
    assert 50_000 // (n_bytes + 400) <= len(known) <= 50_000 // n_bytes
