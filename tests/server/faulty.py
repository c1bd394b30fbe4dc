"""A server with a bug: its version cannot be had."""

import sys
from typing import Any

from gptoss_local.__main__ import main
from gptoss_local.server.dialects.ollama import routes


def fail(_version: str) -> Any:
    raise ZeroDivisionError("two\nlines")


if __name__ == "__main__":
    routes.ServerVersion = fail  # type: ignore[assignment, misc]
    sys.exit(main())
