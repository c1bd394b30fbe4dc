"""The loop of answers and calls: requests, decisions and ends."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.events import ChatEvent, ContentDelta, Done, Started, ToolCall
from gptoss_local.base.types import Usage
from gptoss_local.talk import loop
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.loop import (
    UNANSWERED,
    CallBegun,
    CallEnded,
    CallRefused,
    Continued,
    LimitReached,
    Loop,
)
from gptoss_local.talk.tools import Arguments, RunnableTool, Toolbox, ToolResult
from gptoss_local.talk.tools.consent import Consents
from tests.tools.own_source import OwnSource

pytestmark = pytest.mark.quick

DENIED = ToolResult("Denied.", is_error=True)
STOPPED = "The user stopped this call."
TOO_MANY = "Not run: an answer may not have more calls. Answer without."
Said = list[ChatEvent]


def said(*names: str, reason: Any = "stop") -> Said:
    calls = [ToolCall(n, f"call_{n}", name, {"n": n}) for n, name in enumerate(names)]
    return [Started(3), ContentDelta("So."), *calls, Done(reason, Usage(3, 1, 0, 0), [])]


class Scripted:
    """Answers in order; the last one again and again. One waits for ever before its end."""

    def __init__(self, *answers: Said, waits: bool = False) -> None:
        self.answer = Answer()
        self._answers, self._waits = list(answers), waits

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        self.answer = Answer()
        events = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        for event in events:
            if self._waits and isinstance(event, Done):
                await asyncio.Event().wait()
            yield event


async def run(arguments: Arguments) -> str:
    return f"ran {arguments['n']}"


async def fail(_: Arguments) -> str:
    raise UsageError("x must be a number")


async def hang(_: Arguments) -> str:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.02)  # as a program takes to end
    return "never"


async def toolbox(**limits: Any) -> Toolbox:
    """Make tools: `f`, `bad` and `slow`, about which the user is asked, and `free`."""
    asking = OwnSource("asking", "is a test", {"f": run, "bad": fail, "slow": hang})
    made = Toolbox([asking, OwnSource("free", "", {"free": run})], Consents(None), **limits)
    await made.prepare()
    made.trusted.add("free")
    return made


def told(event: Any) -> list[str]:
    match event:
        case CallBegun(call):
            return [f"begin {call.name}"]
        case CallEnded(call, result):
            return [f"end {call.name}: {result.text}"]
        case CallRefused(call, result):
            return [f"refuse {call.name}: {result.text}"]
        case LimitReached(limit):
            return [f"limit {limit}"]
        case Continued():
            return ["again"]
        case Done():
            return ["done"]
    return []


async def allow(_tool: RunnableTool, _arguments: Arguments) -> None:
    return None


async def deny(_tool: RunnableTool, _arguments: Arguments) -> ToolResult:
    return DENIED


RAN = ["done", "begin f", "end f: ran 0", "again"]
REFUSED = ["done", f"refuse f: {TOO_MANY}"]
REPEATED = ["done", f"refuse f: {loop.REPEATED.text}"]
ONLY_F: dict[str, Any] = {"is_ours": lambda name: name == "f"}


class AskingAlways(Loop):
    def must_ask(self, tool: RunnableTool) -> bool:
        return True


ALL: dict[str, Any] = {"kind": AskingAlways}


@pytest.mark.parametrize(
    ("answers", "ask", "how", "expected"),
    [
        ([said()], allow, {}, ["done"]),
        ([said("f"), said()], allow, {}, [*RAN, "done"]),
        ([said("f"), said("f"), said()], allow, {}, [*RAN, *RAN, "done"]),
        ([said("f"), said()], deny, {}, ["done", "begin f", "end f: Denied.", "again", "done"]),
        ([said("f"), said()], None, {}, [*RAN, "done"]),
        ([said("free"), said()], None, {},
         ["done", "begin free", "end free: ran 0", "again", "done"]),
        ([said("free"), said()], deny, {},
         ["done", "begin free", "end free: ran 0", "again", "done"]),
        ([said("free"), said()], deny, ALL,
         ["done", "begin free", "end free: Denied.", "again", "done"]),
        ([said("free"), said()], None, ALL,
         ["done", "begin free", "end free: ran 0", "again", "done"]),
        ([said("g"), said()], None, {},
         ["done", "begin g", 'end g: Error: there is no tool "g"; there are f, bad, slow, free',
          "again", "done"]),
        ([said("bad"), said()], allow, {},
         ["done", "begin bad", "end bad: Error: x must be a number", "again", "done"]),
        ([said("free")], allow, ONLY_F, ["done"]),
        ([said("f", "free")], allow, ONLY_F, RAN[:3]),
        ([said("f", reason="length")], allow, {}, ["done"]),
        ([said("f", "f"), said()], allow, {"n_calls_max": 1},
         [*RAN[:3], f"refuse f: {TOO_MANY}", "again", "done"]),
        ([said("f"), said()], allow, {"n_calls_max": 0}, [*REFUSED, "again", "done"]),
        ([said("f")], allow, {"n_calls_max": 2}, [*RAN * 2, *REFUSED, "again", *REFUSED,
                                                  "limit 2 calls"]),
        ([said("f")], None, {"n_calls_max": 0}, [*REFUSED, "again", *REFUSED, "limit 0 calls"]),
        ([said("f")], allow, {"n_rounds": 1}, [*RAN, *REFUSED, "again", *REFUSED,
                                               "limit 1 rounds of tools"]),
        ([said("f", "f"), said()], allow, {"n_rounds": 0},
         [*REFUSED, f"refuse f: {TOO_MANY}", "again", "done"]),
        ([said("f"), said("f"), said("f"), said()], allow, {},
         [*RAN * 2, *REPEATED, "again", "done"]),
        ([said("f")], allow, {}, [*RAN * 2, *(*REPEATED, "again") * 2, *REFUSED,
                                  "limit 5 equal calls of f"]),
        ([said(*"ffff"), said()], allow, {},
         ["done", *(line for n in range(4) for line in ("begin f", f"end f: ran {n}")),
          "again", "done"]),
        ([said("f")], allow, {"loop_s": -1.0}, [*REFUSED, "again", *REFUSED,
                                                "limit -1 s of tools"]),
    ],
)  # fmt: skip
async def test_asks_decisions_and_ends(
    answers: list[Said], ask: Any, how: dict[str, Any], expected: list[str]
) -> None:
    limits = {name: how[name] for name in ("n_rounds", "loop_s") if name in how}
    tools, kind = await toolbox(**limits), how.get("kind", Loop)
    rest = {name: value for name, value in how.items() if name not in (*limits, "kind")}
    events = kind(Scripted(*answers), tools, ask, **rest).run()
    assert [line async for event in events for line in told(event)] == expected


async def test_what_the_user_allowed_is_not_asked_about_again() -> None:
    tools, asked = await toolbox(), []

    async def ask(tool: RunnableTool, arguments: Arguments) -> None:
        asked.append((tool.name, dict(arguments)))
        tools.allow(tool, "chat")

    events = Loop(Scripted(said("f", "f"), said()), tools, ask).run()
    assert [line async for event in events for line in told(event)].count("end f: ran 1") == 1
    assert asked == [("f", {"n": 0})]


async def test_the_time_of_asking_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, tools = [0.0], await toolbox(loop_s=10.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def ask(_tool: RunnableTool, _arguments: Arguments) -> None:
        now[0] += 100

    events = Loop(Scripted(said("f"), said("f"), said()), tools, ask).run()
    assert [line async for event in events for line in told(event)] == [*RAN, *RAN, "done"]


Stop = Callable[[Loop], Awaitable[None]]


async def stopped(
    source: Scripted, at: str, result: ToolResult | None = None, ask: Any = allow
) -> list[str]:
    """Stop where a line comes, as a key that is pressed again and again; return all lines."""
    lines: list[str] = []
    running = Loop(source, await toolbox(), ask)
    stop = (lambda: running.stop(result)) if result else running.stop
    async for event in running.run():
        lines += told(event) or ["text"]
        if lines[-1] == at:
            for delay_s in (0, 0, 0.01):
                asyncio.get_running_loop().call_later(delay_s, stop)
    return lines


@pytest.mark.parametrize("result", [None, UNANSWERED])
async def test_stop_ends_a_call_and_refuses_the_next(result: ToolResult | None) -> None:
    text = (result or loop.STOPPED).text
    lines = await stopped(Scripted(said("slow", "f")), "begin slow", result)
    assert lines[-3:] == ["begin slow", f"end slow: {text}", f"refuse f: {text}"]


async def test_stop_ends_a_question() -> None:
    async def ask(_tool: RunnableTool, _arguments: Arguments) -> None:
        await asyncio.Event().wait()

    lines = await stopped(Scripted(said("f")), "begin f", ask=ask)
    assert lines[-2:] == ["begin f", f"end f: {STOPPED}"]


async def test_stop_keeps_the_part_of_an_answer() -> None:
    source = Scripted(said("f"), waits=True)
    running = Loop(source, await toolbox(), allow)
    async for event in running.run():
        if isinstance(event, ToolCall):
            asyncio.get_running_loop().call_soon(running.stop)
    assert (source.answer.phase, source.answer.content) == ("stopped", "So.")


@pytest.mark.parametrize("stops", ["never", "before", "after"])
async def test_a_cancelled_loop_is_not_a_stopped_one(stops: str) -> None:
    running = Loop(Scripted(said("slow")), await toolbox(), allow)
    begun = asyncio.Event()

    async def go() -> None:
        async for event in running.run():
            if isinstance(event, CallBegun):
                begun.set()

    task = asyncio.create_task(go())
    await begun.wait()
    if stops == "before":
        running.stop()
    task.cancel()
    if stops == "after":
        running.stop()
    with pytest.raises(asyncio.CancelledError):
        await task
