"""Reads the bytes of a page or a document in a process of its own, `reading`.

Parsers of foreign files may crash, or take minutes or gigabytes: the process has limits, and is
killed when its time is over.
"""

import asyncio
import sys
from typing import Literal, TypeVar

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.tools.browser.addresses import shortened
from gptoss_local.talk.tools.browser.page import (
    Attached,
    Content,
    Fetched,
    Request,
    Unreadable,
)
from gptoss_local.talk.tools.processes import end_of, started

AnswerT = TypeVar("AnswerT", Content, Attached)

_MODULE = "gptoss_local.talk.tools.browser.reading"
_TIMEOUT_S, _ATTACHED_TIMEOUT_S = 15.0, 30.0
_MAX_BYTES = 2**28  # which no answer has
_TOO_MUCH = "Attach a part of it."


async def read(page: Fetched, *, is_source: bool = False, timeout_s: float = _TIMEOUT_S) -> Content:
    request = Request(page, "source" if is_source else "page")
    answer = await _answer(request, Content, timeout_s)
    if isinstance(answer, Unreadable):
        raise UsageError(f"`{shortened(page.url)}` {answer.why}")
    return answer


async def read_attached(body: bytes, what: Literal["pdf", "docx"]) -> Attached | Unreadable:
    return await _answer(Request(Fetched("", "", body), what), Attached, _ATTACHED_TIMEOUT_S)


async def _answer(request: Request, kind: type[AnswerT], timeout_s: float) -> AnswerT | Unreadable:
    output, no_log = bytearray(), asyncio.subprocess.DEVNULL
    argv = [sys.executable, "-P", "-m", _MODULE]  # -P: not from the current directory
    process, asked = await started(argv, stderr=no_log), msgspec.msgpack.encode(request)
    if await end_of(process, output, timeout_s, asked, n_first=_MAX_BYTES) is None:
        return Unreadable(f"takes longer than {timeout_s:g} s to read", _TOO_MUCH)
    try:
        answer: AnswerT | Unreadable = msgspec.msgpack.decode(output, type=kind | Unreadable)
    except msgspec.DecodeError:  # it has crashed, perhaps without memory
        return Unreadable("cannot be read: it is too large or damaged", _TOO_MUCH)
    if isinstance(answer, Unreadable):
        return Unreadable(f"cannot be read: {answer.why}", answer.hint)
    return answer
