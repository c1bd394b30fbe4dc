"""`gptoss serve` with the scripted engine in the place of the real one."""

import asyncio
from typing import Any

from gptoss_local.__main__ import main

_start_process = asyncio.create_subprocess_exec


async def _start_scripted(program: str, *arguments: str, **options: Any) -> Any:
    if any(argument.startswith("gptoss_local.engine.") for argument in arguments):
        arguments = ("-m", "tests.scripted_engine.process")
    return await _start_process(program, *arguments, **options)


asyncio.create_subprocess_exec = _start_scripted  # type: ignore[assignment]
main()
