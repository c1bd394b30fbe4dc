"""Has the bytes of a page turned into text by a process of its own, `reading`.

Parsers of other people's files may crash, take minutes or gigabytes. There they take a limited
part of the machine, and are killed when the time is over.
"""

import asyncio
import contextlib
import sys

import msgspec

from gptoss_local.errors import UsageError
from gptoss_local.settings import environment_without_secrets
from gptoss_local.tools.browser.addresses import shortened
from gptoss_local.tools.browser.page import Content, Fetched, Request, Unreadable

_MODULE = "gptoss_local.tools.browser.reading"
_TIMEOUT_S = 15.0


async def read(page: Fetched, *, is_source: bool = False, timeout_s: float = _TIMEOUT_S) -> Content:
    """Return the text of a page.

    Args:
        page: What a site has sent.
        is_source: Return it as it was sent, not as it is shown.
        timeout_s: Longest time.

    Raises:
        UsageError: it cannot be read, or not in time.
    """
    url = shortened(page.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _MODULE),  # -P: not from the current directory
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment_without_secrets(),
    )
    try:
        async with asyncio.timeout(timeout_s):
            request = msgspec.msgpack.encode(Request(page, is_source))
            output, _ = await process.communicate(request)
    except TimeoutError as error:
        raise UsageError(f"`{url}` takes longer than {timeout_s:g} s to read") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    try:
        answer = msgspec.msgpack.decode(output, type=Content | Unreadable)
    except msgspec.DecodeError as error:  # it has crashed, perhaps without memory
        raise UsageError(f"`{url}` cannot be read: it is too large or damaged") from error
    if isinstance(answer, Unreadable):
        raise UsageError(f"`{url}` cannot be read: {answer.why}")
    return answer
