"""Saved chats for the web page, over HTTP: see docs/api.md."""

from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from typing import Any, ClassVar, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.api.models import JobStatus
from gptoss_local.base.errors import (
    AnsweringError,
    ChatNotFoundError,
    ForbiddenError,
    GptOssError,
    UsageError,
)
from gptoss_local.base.off_loop import run_off_loop
from gptoss_local.base.quantities import parse_option
from gptoss_local.base.types import Effort
from gptoss_local.server.access import current_caller
from gptoss_local.server.body import read_bytes
from gptoss_local.server.chats import Answers
from gptoss_local.server.chats.changes import ChangeEvent, outward
from gptoss_local.server.chats.exchange import begin_turn
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.named_model import read_named
from gptoss_local.server.dialects.ollama.frames import error_frame
from gptoss_local.server.dialects.options import MAX_INT, NUMBER, number_in
from gptoss_local.server.streaming import NDJSON, AnswerResponse, Framing, json_response
from gptoss_local.talk.conversation import TOOLS, was_cut, without_tools
from gptoss_local.talk.history import ChatSummary, History, Hit, Turn, exported_in
from gptoss_local.talk.tools.work import WORK_IN
from gptoss_local.talk.what_runs import Decision

endpoints = Endpoints()
T = TypeVar("T")

_N_CHATS, _N_HITS = 200, 50
_CHAT = "/api/gptoss/chats/{chat_id:int}"
_LINES = Framing("application/x-ndjson", bytes)


class Chats(msgspec.Struct, omit_defaults=True):
    """`chats`, or `hits` of a search."""

    chats: list[ChatSummary] | None = None
    hits: list[Hit] | None = None


class Added(ChatSummary, frozen=True, kw_only=True):
    """The first chat of a file that was imported, their number, and what is not there."""

    n_chats: int
    notes: list[str]


class Tree(msgspec.Struct):
    """A chat with the turns of all its branches."""

    chat: ChatSummary
    turns: list[Turn]


class Branch(msgspec.Struct):
    turns: list[Turn]


class Begun(msgspec.Struct, omit_defaults=True):
    """An answer that runs now, and the question that was added for it."""

    answer: Turn
    question: Turn | None = None


class UnlockBody(msgspec.Struct):
    passphrase: str


class NewChatBody(msgspec.Struct, kw_only=True):
    model: str = ""
    effort: Effort = "medium"
    preset: str = ""
    system: str = ""
    options: dict[str, Any] = {}
    is_temporary: bool = False


class ChatChangesBody(msgspec.Struct, kw_only=True):
    """Fields to change; `leaf_id` shows the branch with that turn."""

    title: str | None = None
    is_pinned: bool | None = None
    folder: str | None = None
    model: str | None = None
    effort: Effort | None = None
    options: dict[str, Any] | None = None
    leaf_id: int | None = None


class AskBody(msgspec.Struct, kw_only=True):
    """A question after a turn; `folds` are parts that are shown as one line: start, end, label."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("content",)

    content: str = ""
    parent_id: int | None = None
    folds: list[tuple[int, int, str]] = []


class AnswerBody(msgspec.Struct):
    parent_id: int


class TurnBody(msgspec.Struct):
    turn_id: int


class AllowBody(msgspec.Struct):
    """An answer to a question; `reason` of a no is for the model."""

    turn_id: int
    scope: Literal["once", "chat", "always", "no"]
    reason: str = ""


class SystemBody(msgspec.Struct):
    content: str = ""


@endpoints.for_chat(
    "GET",
    "/api/gptoss/chats",
    "List or search",
    Chats,
    queries={"q": {"type": "string"}, "limit": NUMBER},
)
async def chats(request: Request) -> Response:
    words, limit = request.query_params.get("q"), number_in(request.query_params, "limit")

    def find(history: History) -> Chats:
        if words is not None:
            return Chats(hits=history.search(words, limit or _N_HITS))
        return Chats(chats=history.chats(limit or _N_CHATS, pinned_first=True))

    return json_response(await _answers(request).store.call(find))


@endpoints.for_chat(
    "POST", "/api/gptoss/chats/unlock", "Unlock chats that have a passphrase", JobStatus, UnlockBody
)
async def unlock(request: Request) -> Response:
    body = await read_named(request, UnlockBody)
    await changed(request, lambda history: history.lock.unlock(body.passphrase))
    return json_response(JobStatus("success"))


@endpoints.for_chat("POST", "/api/gptoss/chats", "Begin a chat", ChatSummary, NewChatBody)
async def new_chat(request: Request) -> Response:
    body = await read_named(request, NewChatBody)
    options = _checked(body.options)

    def add(history: History) -> ChatSummary:
        history = history.temporary if body.is_temporary else history
        chat_id = history.new_chat(body.model, body.effort, preset=body.preset, options=options)
        if body.system:
            history.add(chat_id, None, "system", body.system)
        return history.chat(chat_id)

    return json_response(await changed(request, add))


@endpoints.for_chat("GET", _CHAT, "A chat with all its turns", Tree)
async def chat(request: Request) -> Response:
    chat_id = chat_id_of(request)

    def read(history: History) -> tuple[ChatSummary, list[Turn]]:
        history.stop_orphans()
        return history.chat(chat_id), history.tree(chat_id)

    answers = _answers(request)
    summary, turns = await answers.store.call(read, chat_id)
    return json_response(Tree(summary, [answers.changes.as_it_is(turn) for turn in turns]))


@endpoints.for_chat("PATCH", _CHAT, "Rename or change", ChatSummary, ChatChangesBody)
async def change_chat(request: Request) -> Response:
    chat_id, body = chat_id_of(request), await read_named(request, ChatChangesBody)
    options = None if body.options is None else _checked(body.options)

    def change(history: History) -> ChatSummary:
        before = history.chat(chat_id)
        if body.leaf_id is not None:
            _turn_of(history, chat_id, body.leaf_id)
            history.select(body.leaf_id)
        if body.title is not None:
            history.rename(chat_id, body.title)
        if body.is_pinned is not None:
            history.pin(chat_id, body.is_pinned)
        if body.folder is not None:
            history.move(chat_id, body.folder)
        if body.model is not None or body.effort is not None:
            history.set_model(chat_id, body.model or before.model, body.effort or before.effort)
        if options is not None:
            history.set_options(chat_id, options)
        return history.chat(chat_id)

    return json_response(await changed(request, change))


@endpoints.for_chat("DELETE", _CHAT, "Delete a chat", JobStatus)
async def delete_chat(request: Request) -> Response:
    chat_id = chat_id_of(request)
    await _answers(request).stop_chat(chat_id)
    await changed(request, lambda history: history.delete(chat_id))
    await _answers(request).toolboxes.drop(chat_id)
    return json_response(JobStatus("success"))


@endpoints.for_chat("POST", f"{_CHAT}/ask", "Ask, and begin the answer", Begun, AskBody)
async def ask(request: Request) -> Response:
    """Add a question and begin its answer, which runs even if the client leaves."""
    chat_id, body = chat_id_of(request), await read_named(request, AskBody)
    if not body.content.strip():
        raise UsageError("the question is empty")
    stats = {"folds": body.folds} if body.folds else {}

    def add(history: History) -> list[Turn]:
        if body.parent_id is not None:
            settled(_turn_of(history, chat_id, body.parent_id))
        question = history.add(chat_id, body.parent_id, "user", body.content, stats=stats)
        return begin_turn(history, question, is_shown=True)

    *_, question, begun = await _start(request, add)
    return json_response(Begun(begun, question))


@endpoints.for_chat("POST", f"{_CHAT}/answer", "Begin another answer", Begun, AnswerBody)
async def answer(request: Request) -> Response:
    chat_id, body = chat_id_of(request), await read_named(request, AnswerBody)

    def add(history: History) -> list[Turn]:
        asked = settled(_turn_of(history, chat_id, body.parent_id))
        if asked.role not in ("user", "tool"):
            raise UsageError("only a question or the result of a tool is answered")
        return begin_turn(history, asked, is_shown=True)

    return json_response(Begun((await _start(request, add))[-1]))


@endpoints.for_chat("POST", f"{_CHAT}/continue", "Continue an answer that was cut", Begun, TurnBody)
async def continue_answer(request: Request) -> Response:
    chat_id, body = chat_id_of(request), await read_named(request, TurnBody)

    def resume(history: History) -> list[Turn]:
        turn = settled(_turn_of(history, chat_id, body.turn_id))
        if not was_cut(turn):
            raise UsageError("this answer was not cut", hint="Ask for another one.")
        if history.select(turn.id)[-1].id != turn.id:
            raise UsageError("only the last answer of a branch can be continued")
        history.update(turn.id, state="streaming")
        return history.branch(turn.id)

    return json_response(Begun(outward((await _start(request, resume))[-1])))


@endpoints.for_chat("POST", f"{_CHAT}/stop", "Stop an answer", JobStatus, TurnBody)
async def stop(request: Request) -> Response:
    body, answers = await read_named(request, TurnBody), _answers(request)
    await answers.stop((await _turn(request, body.turn_id)).id)
    turn = await _turn(request, body.turn_id)
    if turn.state == "streaming" and not answers.is_running(turn.id):
        raise AnsweringError("another program writes this answer", hint="Stop it there.")
    return json_response(JobStatus("success"))


@endpoints.for_chat(
    "POST", f"{_CHAT}/answer-now", "End the reasoning of an answer", JobStatus, TurnBody
)
async def answer_now(request: Request) -> Response:
    body = await read_named(request, TurnBody)
    _answers(request).answer_now((await _turn(request, body.turn_id)).id)
    return json_response(JobStatus("success"))


@endpoints.for_chat("POST", f"{_CHAT}/allow", "Answer whether a call may run", JobStatus, AllowBody)
async def allow(request: Request) -> Response:
    body = await read_named(request, AllowBody)
    if body.scope != "no" and current_caller().kind == "phone":
        raise ForbiddenError(
            "a phone may not let a tool run",
            hint="Allow the call in this chat on the server's machine, or refuse it here.",
        )
    turn = await _turn(request, body.turn_id)
    scope = None if body.scope == "no" else body.scope
    _answers(request).decide(turn.id, Decision(scope, body.reason.strip()))
    return json_response(JobStatus("success"))


@endpoints.for_chat(
    "PUT", f"{_CHAT}/system", "Continue with other instructions", Branch, SystemBody
)
async def set_system(request: Request) -> Response:
    chat_id, body = chat_id_of(request), await read_named(request, SystemBody)

    def change(history: History) -> list[Turn]:
        for turn in history.branch(history.chat(chat_id).leaf_id):
            settled(turn)
        return history.set_system(chat_id, body.content)

    turns = await changed(request, change)
    return json_response(Branch([outward(turn) for turn in turns]))


@endpoints.for_chat("POST", f"{_CHAT}/fork", "A chat of a branch", ChatSummary, TurnBody)
async def fork(request: Request) -> Response:
    chat_id, body = chat_id_of(request), await read_named(request, TurnBody)

    def copy(history: History) -> ChatSummary:
        settled(_turn_of(history, chat_id, body.turn_id))
        return history.chat(history.fork(body.turn_id))

    return json_response(await changed(request, copy))


@endpoints.for_chat(
    "GET", f"{_CHAT}/export", "A chat as text", queries={"format": {"enum": ["json", "markdown"]}}
)
async def export(request: Request) -> Response:
    chat_id, form = chat_id_of(request), request.query_params.get("format", "json")
    if form not in ("json", "markdown"):
        raise UsageError("format is json or markdown")
    is_json = form == "json"

    def write(history: History) -> str:
        return history.export_json(chat_id) if is_json else history.export_markdown(chat_id)

    text = await _answers(request).store.call(write, chat_id)
    return Response(text, media_type="application/json" if is_json else "text/markdown")


@endpoints.for_chat("POST", "/api/gptoss/chats/import", "Add exported chats", Added, dict)
async def import_chats(request: Request) -> Response:
    data = await read_bytes(request)
    found = await run_off_loop(lambda _: exported_in(BytesIO(data), "this file"), len(data))
    added = list[ChatSummary]()
    for chat, turns in found.chats:  # one by one, as answers are stored meanwhile
        add = partial(History.add_tree, chat=chat, turns=turns)
        added.append(await _answers(request).store.call(add))
    _answers(request).changes.look_now()
    first = msgspec.structs.asdict(added[0])
    return json_response(Added(**first, n_chats=len(added), notes=found.notes))


@endpoints.for_chat(
    "GET",
    "/api/gptoss/chats/changes",
    "What changes in the chats, as it does",
    ChangeEvent,
    stream=NDJSON,
    queries={"chat": NUMBER, "n": NUMBER},
)
async def changes(request: Request) -> Response:
    chat_id, n_chats = (number_in(request.query_params, name) for name in ("chat", "n"))
    listener = _answers(request).changes.listen(chat_id, n_chats)
    return AnswerResponse(listener, _LinesWriter(), stream=True)


class _LinesWriter:
    """Sends lines as they are; silence means that nothing changes."""

    framing = _LINES

    def feed(self, event: bytes) -> Iterable[bytes]:
        return [event]

    def keepalive(self) -> Iterable[bytes]:
        return []

    def whole(self) -> bytes:
        return b""

    def failed(self, error: GptOssError) -> Iterable[bytes]:
        return [msgspec.json.encode(error_frame(error)) + b"\n"]


def _answers(request: Request) -> Answers:
    answers: Answers = request.app.state.answers
    return answers


def chat_id_of(request: Request) -> int:
    chat_id: int = request.path_params["chat_id"]
    if chat_id > MAX_INT:
        raise ChatNotFoundError(f"There is no chat {chat_id}.")
    return chat_id


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    tools = options.get(TOOLS, "")
    if not isinstance(tools, str):
        raise UsageError(f"{TOOLS} is a list of names with commas")
    if WORK_IN in tools and not current_caller().may_work:
        raise ForbiddenError(
            "only the owner lets a model work in a folder, on the server's machine",
            hint="Change this chat there.",
        )
    given = without_tools(options).items()
    checked: dict[str, Any] = {name: parse_option(name, str(value)) for name, value in given}
    return checked | ({TOOLS: tools} if TOOLS in options else {})


async def _turn(request: Request, turn_id: int) -> Turn:
    chat_id, store = chat_id_of(request), _answers(request).store
    return await store.call(lambda history: _turn_of(history, chat_id, turn_id), chat_id)


def _turn_of(history: History, chat_id: int, turn_id: int) -> Turn:
    turn = history.turn(turn_id) if 0 < turn_id <= MAX_INT else None
    if turn is None or turn.chat_id != chat_id:
        raise ChatNotFoundError(f"There is no turn {turn_id} in this chat.")
    return turn


def settled(turn: Turn) -> Turn:
    if turn.state == "streaming":
        raise AnsweringError("this answer is still being written", hint="Wait for it, or stop it.")
    return turn


async def _start(request: Request, add: Callable[[History], list[Turn]]) -> list[Turn]:
    """Add turns, run the answer that ends their branch, and return the branch."""
    answers = _answers(request)

    def begin(history: History) -> tuple[list[Turn], ChatSummary]:
        branch = add(history)
        return branch, history.chat(branch[-1].chat_id)

    branch, chat = await answers.store.call(begin, request.path_params["chat_id"])
    answers.start(chat, branch, "owner")  # as the chat is the owner's, also on a phone
    return branch


async def changed(request: Request, work: Callable[[History], T]) -> T:
    answers = _answers(request)
    result = await answers.store.call(work, request.path_params.get("chat_id"))
    answers.changes.look_now()
    return result
