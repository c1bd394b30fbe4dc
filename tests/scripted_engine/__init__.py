"""Run a real server whose engine plays a script, to test with answers as real models write them.

Only the engine's process is replaced, by an object that speaks the same frames
(`engine/protocol.py`) and plays token ids at any speed. Harmony, every dialect, the chat and the
command line are the real ones. The server runs in a thread of this process.

    script = Script(vocabulary)
    script.say("Show me a loop", answer("Here:\n\n```python\nfor n in x: ...\n```\n", "Easy."))
    script.say("Weather?", calls("get_weather", {"location": "Tokyo"}), answer("Sunny."))
    script.otherwise(answer("I do not know.", pauses={3: 10.0}))  # silent for 10 s
    with run_scripted_server(home, script) as server:
        ...

A question is the user's whole message. The first reply answers it, the second one answers the first
result of a tool, and so on. `Reply` sets the speed, pauses, and where the engine fails or dies.
`script.prompts` are the token ids that the engine was given.
"""

import asyncio
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from gptoss_local.base.settings import load_settings
from tests.conftest import RunningServer, free_port, run_server
from tests.scripted_engine.engine import ScriptedProcess
from tests.scripted_engine.script import (
    SCRIPT_VARIABLE,
    Part,
    Reply,
    Script,
    answer,
    calls,
    calls_built_in,
)
from tests.server_in_thread import serving

__all__ = [
    "SCRIPT_VARIABLE",
    "Part",
    "Reply",
    "Script",
    "answer",
    "calls",
    "calls_built_in",
    "run_scripted_server",
]

_played = threading.local()
_start_process = asyncio.create_subprocess_exec


def play(parts: list[Part], on_prompt: Callable[[list[int]], None]) -> None:
    """Let engines that this thread starts from now on play a script."""
    _played.script = (parts, on_prompt)


async def _start_scripted(program: str, *arguments: str, **options: Any) -> Any:
    script = getattr(_played, "script", None)
    if script and any(argument.startswith("gptoss_local.engine.") for argument in arguments):
        return ScriptedProcess(*script)
    return await _start_process(program, *arguments, **options)


asyncio.create_subprocess_exec = _start_scripted  # type: ignore[assignment]


@contextmanager
def run_scripted_server(
    home: Path, script: Script, *, is_process: bool = False, **settings: str
) -> Iterator[RunningServer]:
    """Start a server of its own, with nano's file as the model, and stop it afterwards.

    Args:
        is_process: For tests of kills, exit codes, logs and processor time: the server has a
            process of its own. It costs two seconds.
    """
    if is_process:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "script"
            script.write(path)
            variables = {SCRIPT_VARIABLE: str(path)}
            with run_server(home, "tests.scripted_engine", variables, **settings) as server:
                yield server
        return
    script.begin()
    loaded = load_settings(home=home, port=free_port(), prefix_disk_bytes=0, **settings)
    with serving(loaded, partial(play, script.parts, script.heard.append)) as thread:
        yield RunningServer(loaded.url, cast("subprocess.Popen[bytes]", thread), home)
