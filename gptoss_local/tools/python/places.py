"""The processes in which code runs: Monty's, and one of a container."""

import importlib.util
import json
import os
import secrets
import sys
from pathlib import Path

from gptoss_local.errors import UsageError
from gptoss_local.settings import environment_without_secrets
from gptoss_local.tools.python.choice import container_program
from gptoss_local.tools.python.driver import Config
from gptoss_local.tools.python.framed import FramedEngine
from gptoss_local.tools.results import MAX_OUTPUT_CHARACTERS

_DRIVER = Path(__file__).with_name("driver.py")
_N_CHARACTERS = MAX_OUTPUT_CHARACTERS - 500  # with notes it is not cut again
_NEEDED = ("SYSTEMROOT", "LD_LIBRARY_PATH")
"""Variables without which Python does not start: on Windows, and where it is built so."""


def sandbox(timeout_s: float, memory_bytes: int) -> FramedEngine:
    """Return a process with Monty. Raises UsageError: it is not installed."""
    found = importlib.util.find_spec("pydantic_monty")
    if found is None or found.origin is None:
        hint = f"Run {sys.executable} -m pip install pydantic-monty"
        raise UsageError("the sandbox of python is not installed: pydantic-monty", hint=hint)
    path = str(Path(found.origin).parents[1])
    config = Config("monty", timeout_s, _N_CHARACTERS, memory_bytes, path)
    argv = [sys.executable, "-I", "-B", str(_DRIVER), json.dumps(config._asdict())]
    env = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    return FramedEngine(argv, env, timeout_s)


def container(image: str, timeout_s: float, memory_bytes: int) -> FramedEngine:
    """Return a container of an image with Python 3.8 or later.

    It has no network and no capabilities, and cannot write outside of /tmp. The image must have
    been pulled, which would take longer than a call.

    Raises:
        UsageError: neither podman nor docker is there.
    """
    program = container_program()
    if program is None:
        raise UsageError("there is neither podman nor docker")
    name = f"gptoss-python-{secrets.token_hex(8)}"
    config = Config("cpython", timeout_s, _N_CHARACTERS)
    argv = [
        *(program, "run", "--rm", "--interactive", "--name", name, "--pull", "never"),
        *("--network", "none", "--read-only", "--tmpfs", "/tmp:rw,size=64m"),
        *("--memory", str(memory_bytes), "--memory-swap", str(memory_bytes)),
        *("--pids-limit", "64", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", "65534", "--workdir", "/tmp", "--entrypoint", "python", image),
        *("-I", "-c", _DRIVER.read_text(encoding="utf-8"), json.dumps(config._asdict())),
    ]
    ends_by = (program, "rm", "--force", name)
    return FramedEngine(argv, environment_without_secrets(), timeout_s, ends_by=ends_by)
