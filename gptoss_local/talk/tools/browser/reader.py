"""Reads the bytes of a page or a document in a process of its own, `reading`.

Parsers of foreign files may crash, or take minutes or gigabytes: the process has limits, and is
killed when its time is over.
"""

import asyncio
import contextlib
import sys
from typing import Literal, TypeVar

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import environment_without_secrets
from gptoss_local.talk.tools.browser.addresses import shortened
from gptoss_local.talk.tools.browser.page import (
    Attached,
    Content,
    Fetched,
    Request,
    Unreadable,
    UnreadableError,
)

AnswerT = TypeVar("AnswerT", Content, Attached)

_MODULE = "gptoss_local.talk.tools.browser.reading"
_TIMEOUT_S, _ATTACHED_TIMEOUT_S = 15.0, 30.0
_TOO_MUCH = "Attach a part of it."


async def read(page: Fetched, *, is_source: bool = False, timeout_s: float = _TIMEOUT_S) -> Content:
    try:
        request = Request(page, "source" if is_source else "page")
        return await _answer(request, Content, timeout_s)
    except UnreadableError as error:
        raise UsageError(f"`{shortened(page.url)}` {error}") from error


async def read_attached(body: bytes, what: Literal["pdf", "docx"]) -> Attached:
    return await _answer(Request(Fetched("", "", body), what), Attached, _ATTACHED_TIMEOUT_S)


async def _answer(request: Request, kind: type[AnswerT], timeout_s: float) -> AnswerT:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _MODULE),  # -P: not from the current directory
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment_without_secrets(),
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate(msgspec.msgpack.encode(request))
    except TimeoutError as error:
        raise UnreadableError(f"takes longer than {timeout_s:g} s to read", _TOO_MUCH) from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    try:
        answer: AnswerT | Unreadable = msgspec.msgpack.decode(output, type=kind | Unreadable)
    except msgspec.DecodeError as error:  # it has crashed, perhaps without memory
        raise UnreadableError("cannot be read: it is too large or damaged", _TOO_MUCH) from error
    if isinstance(answer, Unreadable):
        raise UnreadableError(f"cannot be read: {answer.why}", answer.hint)
    return answer
