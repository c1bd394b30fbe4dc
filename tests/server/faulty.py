"""A server with a bug: its version cannot be had."""

import sys
from typing import Any

from starlette.requests import Request

from gptoss_local.__main__ import main
from gptoss_local.server.dialects.ollama import routes


async def fail(request: Request) -> Any:
    raise ZeroDivisionError("two\nlines")


if __name__ == "__main__":
    routes.version = fail
    sys.exit(main())
