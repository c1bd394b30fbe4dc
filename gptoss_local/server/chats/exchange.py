"""An exchange of a saved chat, which needs no open tab.

A call's turn streams until the result; its question is there, too, so every tab shows it.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from gptoss_local.base.errors import ChatNotFoundError, GptOssError, HistoryError
from gptoss_local.base.events import ChatEvent, Done, ToolCall
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import Effort
from gptoss_local.harmony import AnswerNow, ChatRequest, Message
from gptoss_local.models.store import ModelDefaults, find_model
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import current_caller
from gptoss_local.server.body import convert
from gptoss_local.server.chats.changes import Changes, ChatStore, Live
from gptoss_local.server.dialects.history import SentCall, SentMessage
from gptoss_local.server.dialects.named_model import begin, fill_in
from gptoss_local.server.dialects.options import Options
from gptoss_local.server.dialects.sent_tools import offered
from gptoss_local.server.streaming import log_error
from gptoss_local.talk import loop
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import (
    ToolChoice,
    instructed,
    pages_of,
    result_stats,
    to_send,
    without_tools,
)
from gptoss_local.talk.history import ChatSummary, History, Role, Turn, is_temporary
from gptoss_local.talk.history.rows import TurnFields
from gptoss_local.talk.loop import STOPPED
from gptoss_local.talk.tools import Arguments, RunnableTool, Toolbox, ToolResult, ToolSources
from gptoss_local.talk.tools.work import Work
from gptoss_local.talk.what_runs import Decision, about_text, always_text, what_runs

T = TypeVar("T")

_log = logging.getLogger("gptoss")

ASK_S = 600.0

RETRY_S = 5.0  # time until the next try where the disk refuses something

_SAVE_S = 1.0
_N_KEPT = 8  # chats without an answer that runs, and their tools


class _Kept:
    def __init__(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox
        self.choice = ToolChoice(toolbox)
        self.n_uses = 0


class Toolboxes:
    """Makes toolboxes of chats when needed, and ends the least recently used ones.

    Callers that may not work in the folder of the settings have their own, without its tools.
    """

    def __init__(self, sources: ToolSources, settings: Settings) -> None:
        self._sources, self._settings = sources, settings
        self._kept: OrderedDict[tuple[int, bool], _Kept] = OrderedDict()
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def use(self, chat: ChatSummary, branch: Sequence[Turn]) -> AsyncGenerator[Toolbox, None]:
        async with self._lock:
            kept = self._kept.get(key := (chat.id, self._works))
            if kept is None:
                kept = _Kept(self._made())
                await kept.toolbox.new_chat(pages_of(branch))
                self._kept[key] = kept
            self._kept.move_to_end(key)
            kept.n_uses += 1
        kept.choice.take(chat.options)
        try:
            yield kept.toolbox
        finally:
            kept.n_uses -= 1
            unused = [key for key, each in self._kept.items() if not each.n_uses]
            await self._end(unused[:-_N_KEPT])

    @asynccontextmanager
    async def use_new(self) -> AsyncGenerator[Toolbox, None]:
        toolbox = self._made()
        try:
            yield toolbox
        finally:
            await toolbox.close()

    @property
    def _works(self) -> bool:
        return bool(self._settings.work_folder) and current_caller().may_work

    def _made(self) -> Toolbox:
        folder = Path(os.path.expanduser(self._settings.work_folder))
        work = Work(folder, self._settings, is_on=False) if self._works else None
        return self._sources.toolbox(work)

    async def renew(self) -> None:
        await self._sources.renew(kept.toolbox for kept in self._kept.values())

    async def drop(self, chat_id: int) -> None:
        await self._end([key for key in self._kept if key[0] == chat_id])

    async def close(self) -> None:
        await self._end(list(self._kept))

    async def _end(self, keys: list[tuple[int, bool]]) -> None:
        for key in keys:
            if kept := self._kept.pop(key, None):
                await kept.toolbox.close()


class Parts(NamedTuple):
    """The parts that all exchanges share."""

    manager: ModelManager
    store: ChatStore
    changes: Changes
    toolboxes: Toolboxes
    running: dict[int, Live]


class Question(NamedTuple):
    turn_id: int
    tool: RunnableTool
    answer: asyncio.Future[Decision]


def begin_turn(
    history: History, after: Turn, tool_name: str | None = None, *, is_shown: bool = False
) -> list[Turn]:
    """Add an answer, or the result of a tool, that streams; return the branch down to it."""
    chat = history.chat(after.chat_id)
    fields: TurnFields = {"model": chat.model, "effort": chat.effort, "state": "streaming"}
    role: Role = "assistant"
    if tool_name is not None:
        role, fields = "tool", {"tool_name": tool_name, "state": "streaming"}
    turn = history.add(chat.id, after.id, role, "", moves_leaf=is_shown, **fields)
    return history.branch(turn.id)


class Exchange(loop.Exchange):
    def __init__(self, chat: ChatSummary, branch: list[Turn], owner: str, parts: Parts) -> None:
        super().__init__()
        self.turn_ids: set[int] = set()
        self._parts = parts
        self.owner = owner
        self._chat = chat
        self._question: Question | None = None
        self.answer_now = AnswerNow()
        self._call_result = STOPPED  # of the open turn, if that is a call
        self._open(branch)

    @property
    def chat_id(self) -> int:
        return self._chat.id

    @property
    def leaf(self) -> Turn:
        return self._branch[-1]

    @property
    def turn(self) -> Turn:
        return msgspec.structs.replace(self.leaf, **self.answer.turn_fields())

    @property
    def is_asking(self) -> bool:
        return self._question is not None

    def allow(self, turn_id: int, decision: Decision) -> bool:
        question = self._question
        if question is None or question.turn_id != turn_id or question.answer.done():
            return False
        if decision.scope in ("chat", "always"):
            self.toolbox.allow(question.tool, decision.scope)
            decision = Decision("once")  # what cannot be kept leaves the question open
        question.answer.set_result(decision)
        return True

    async def lead(self) -> None:
        try:
            try:
                async with self._parts.toolboxes.use(self._chat, self._branch) as toolbox:
                    await self.follow_all(toolbox)
            except GptOssError as error:
                self.answer.fail(error)
            await self._go_on()
        except ChatNotFoundError:  # deleted meanwhile
            pass
        except Exception:
            _log.exception("internal error in chat %d", self._chat.id)
            await self._store(self._fail)
        finally:
            for turn_id in self.turn_ids:
                self._parts.running.pop(turn_id, None)

    async def begin_call(self, call: ToolCall) -> None:
        await self._go_on(lambda history, after: begin_turn(history, after, call.name))

    async def end_call(self, call: ToolCall, result: ToolResult) -> None:
        self._call_result = result

    async def refuse_call(self, call: ToolCall, result: ToolResult) -> None:
        await self.begin_call(call)
        await self.end_call(call, result)

    async def begin_answer(self) -> None:
        await self._go_on(begin_turn)

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the answer in the open turn; errors are kept there."""
        answer, manager = self.answer, self._parts.manager
        for notice in await self.toolbox.prepare():
            self.tell(notice)
        saving = asyncio.create_task(self._save_on())
        try:
            entry = find_model(self._chat.model, manager.settings)
            asked, n_ctx = asked_of(self._chat, self._branch, self.toolbox, entry.defaults)
            self.answer_now = AnswerNow()
            asked = msgspec.structs.replace(
                asked,
                owner=self.owner,
                priority=current_caller().priority,
                answer_now=self.answer_now,
            )
            async with aclosing(manager.answer(entry, asked, n_ctx=n_ctx)) as events:
                async for event in events:
                    if isinstance(event, Done) and answer.prefill is not None:
                        own = event.tokens[answer.prefill.n_prompt :]
                        event = msgspec.structs.replace(event, tokens=own)
                    yield event
        except GptOssError as error:
            log_error(error)
            answer.fail(error)
        except Exception:
            _log.exception("internal error in an answer")
            answer.end("failed", "internal error, see the server log")
        finally:
            saving.cancel()

    async def _save_on(self) -> None:
        """Store the answer about once a second; its end is stored with the next turn."""
        turn, answer, n_saved = self.leaf, self.answer, 0
        while True:
            await asyncio.sleep(_SAVE_S)
            n_frames, fields = answer.n_frames, answer.turn_fields()
            if n_frames == n_saved or not answer.is_live:
                continue
            save = partial(History.update, turn_id=turn.id, **fields)
            try:
                await self._parts.store.call(save, self.chat_id)
            except ChatNotFoundError:  # deleted meanwhile
                self.stop()
            except HistoryError as error:
                log_error(error)
            else:
                n_saved = n_frames

    async def _go_on(self, begin: Callable[[History, Turn], list[Turn]] | None = None) -> None:
        """Store the end of the open turn and, at once, the turn that `begin` adds, if any."""
        turn = self.leaf
        fields: dict[str, Any] = self.answer.turn_fields()
        if turn.role == "tool":
            content, stats = self._call_result.text, result_stats(self._call_result)
            fields = {"content": content, "state": "done", "stats": stats}

        def store(history: History) -> tuple[ChatSummary, list[Turn]]:
            history.update(turn.id, **fields)
            following = begin(history, turn) if begin is not None else []
            return history.chat(turn.chat_id), following

        self._chat, following = await self._store(store)
        self._parts.running.pop(turn.id, None)
        if following:
            self._open(following)

    def _open(self, branch: list[Turn]) -> None:
        self._branch, turn = branch, branch[-1]
        self.turn_ids.add(turn.id)
        self._call_result = STOPPED
        if turn.role != "tool":
            self.answer = Answer(begun=turn)
            self._parts.running[turn.id] = self

    def _fail(self, history: History) -> None:
        error = {"error": "internal error, see the server log"}
        for turn_id in self.turn_ids:
            if history.turn(turn_id).state == "streaming":
                history.update(turn_id, state="failed", stats=error)

    async def decide(self, tool: RunnableTool, arguments: Arguments) -> Decision | None:
        turn_id = self.leaf.id
        question = self._question = Question(turn_id, tool, asyncio.Future())
        shown = {
            "about": about_text(tool),
            "always": always_text(tool),
            "lasting": tool.lasting,
            "parts": [part._asdict() for part in what_runs(tool, arguments)],
        }
        try:
            await self._show(turn_id, {"question": shown})
            decision = await asyncio.wait_for(question.answer, ASK_S)
        except TimeoutError:
            return None
        finally:
            self._question = None
        if decision.scope is not None:
            await self._show(turn_id, {})
        return decision

    async def _show(self, turn_id: int, stats: dict[str, Any]) -> None:
        await self._store(lambda history: history.update(turn_id, stats=stats))

    async def _store(self, work: Callable[[History], T]) -> T:
        """Change the chats, again and again while the disk refuses it. Raises ChatNotFoundError."""
        while True:
            try:
                result = await self._parts.store.call(work, self.chat_id)
            except ChatNotFoundError:
                raise
            except HistoryError as error:
                log_error(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._parts.changes.look_now()
                return result

    def tell(self, notice: str) -> None:
        _log.warning("chat %d: %s", self._chat.id, notice)
        self._parts.changes.tell(self._chat.id, notice)


def asked_of(
    chat: ChatSummary, branch: Sequence[Turn], toolbox: Toolbox, defaults: ModelDefaults
) -> tuple[ChatRequest, int | None]:
    given = without_tools(chat.options)
    options = convert(fill_in({"options": given}, defaults)["options"], Options)
    request = ChatRequest(
        messages=tuple(
            map(_message, to_send(instructed(branch, toolbox.instructions), branch[-1]))
        ),
        tools=tuple(map(offered, toolbox.offered())),
        effort=next((effort for effort in get_args(Effort) if effort == chat.effort), "medium"),
        truncates=bool(given.get("truncate")),
        may_grow=not given.get("truncate"),
        reports_prefill=True,
        in_memory=is_temporary(chat.id),
        **options.request_fields(),
    )
    return begin(request, defaults), options.n_ctx


def _message(turn: Turn) -> Message:
    calls = convert(list(turn.tool_calls), list[SentCall])
    sent = SentMessage(turn.role, turn.content, reasoning=turn.reasoning, tool_calls=calls)
    sent.tool_name = turn.tool_name
    return sent.to_message()
