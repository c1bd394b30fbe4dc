"""Work whose client may leave before it is done, where there is nothing to stream."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from gptoss_local.errors import UsageError

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work, or cancel it when the client leaves.

    Args:
        request: Of the client; its body has been read.
        work: What to do.

    Raises:
        UsageError: the client has left.
    """
    tasks = doing, _ = asyncio.create_task(work), asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise UsageError("the client left before its answer was complete")
        return doing.result()
    finally:
        for task in tasks:
            task.cancel()


async def disconnected(receive: Receive) -> None:
    """Return when the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
