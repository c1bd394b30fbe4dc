"""Starts a program of a tool, and ends it with all its children.

Linux has sessions for that. Windows has jobs, whose processes end with the last handle, also by the
end of this process.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import weakref
from pathlib import Path
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import environment_without_secrets

MAX_OUTPUT_BYTES = 32 * 1024
CUT = f"\n(cut after {MAX_OUTPUT_BYTES // 1024} KiB)"
_MAX_TAIL_BYTES = 16 * 1024
_LOOK_S = 0.1
_PLAIN = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat",
          "GIT_TERMINAL_PROMPT": "0"}  # fmt: skip  # for programs that no person reads

_PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
_jobs: weakref.WeakKeyDictionary[asyncio.subprocess.Process, Any] = weakref.WeakKeyDictionary()


async def start(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program as `asyncio.create_subprocess_exec` does, with pipes by default."""
    options = _PIPES | options
    if sys.platform == "win32":
        job = _new_job()  # first: a program soon starts others
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True, **options)
    if sys.platform == "win32":
        _put_into(job, process.pid)
        _jobs[process] = job
    return process


def kill_tree(process: asyncio.subprocess.Process) -> None:
    """Kill a process of `start` and its descendants. Raises ProcessLookupError if none is left."""
    if sys.platform == "win32":
        import win32job

        win32job.TerminateJobObject(_jobs[process], 1)
    else:
        os.killpg(process.pid, signal.SIGKILL)


async def started(
    argv: list[str], folder: Path | None = None, **options: Any
) -> asyncio.subprocess.Process:
    """Start a program without our secrets, all its output in one pipe. Raises UsageError."""
    usual = {"env": environment_without_secrets(), "stderr": asyncio.subprocess.STDOUT}
    try:
        return await start(*argv, cwd=folder, **(usual | options))
    except (OSError, ValueError) as error:
        raise UsageError(f"{argv[0]} does not start: {error}") from error


def shell_argv(command: str, shell: str = "") -> list[str]:
    if sys.platform == "win32":
        return ["powershell", "-NoProfile", "-Command", command]
    return [shell or shutil.which("bash") or "/bin/sh", "-c", command]


async def run_program(argv: list[str], stdin: bytes, timeout_s: float, folder: Path) -> str:
    """Run a program without a shell, and kill it with its children when the time is over."""
    output = bytearray()
    process = await started(argv, folder)
    code = await end_of(process, output, timeout_s, stdin, n_first=MAX_OUTPUT_BYTES)
    text = output[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")
    if len(output) > MAX_OUTPUT_BYTES:
        return text + CUT
    if code is None:
        raise UsageError(f"{argv[0]} took longer than {timeout_s:g} s and was stopped")
    if code:
        raise UsageError(f"exit code {code}\n{text}".rstrip())
    return text


async def run_shell(command: str, timeout_s: float, folder: Path) -> tuple[int | None, bytes]:
    """Run a command line; return its exit code, None if the time was over, and its output's end."""
    output = bytearray()
    environment = environment_without_secrets() | _PLAIN
    process = await started(shell_argv(command), folder, env=environment)
    return await end_of(process, output, timeout_s), bytes(output)


async def end_of(
    process: asyncio.subprocess.Process,
    output: bytearray,
    timeout_s: float,
    stdin: bytes = b"",
    n_first: int | None = None,
) -> int | None:
    """Read what a program writes until it ends, or more than `n_first`; return its exit code.

    All that it has started is killed then, also what it left in the background.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            with contextlib.suppress(ConnectionError):  # it reads nothing
                process.stdin.write(stdin)
                await process.stdin.drain()
            process.stdin.close()
            while process.returncode is None or not process.stdout.at_eof():
                has_ended = process.returncode is not None
                try:
                    piece = await asyncio.wait_for(process.stdout.read(MAX_OUTPUT_BYTES), _LOOK_S)
                except TimeoutError:
                    if has_ended:  # before this read, so the program's own output has been read
                        break  # its children in the background hold the pipe
                    continue
                output += piece
                if n_first is None:
                    del output[:-_MAX_TAIL_BYTES]
                elif len(output) > n_first:
                    return None
                if not piece:
                    await process.wait()
            return process.returncode
    except TimeoutError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            kill_tree(process)
        with contextlib.suppress(TimeoutError):  # one that left the group may hold the pipe
            await asyncio.wait_for(process.communicate(), 1)  # `wait` hangs if it is full


if sys.platform == "win32":

    def _new_job() -> Any:
        import win32api  # noqa: F401  # PERF: not between the start and the job
        import win32job

        job = win32job.CreateJobObject(None, "")
        kind = win32job.JobObjectExtendedLimitInformation
        limits = win32job.QueryInformationJobObject(job, kind)
        flags = win32job.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
        limits["BasicLimitInformation"]["LimitFlags"] |= flags
        win32job.SetInformationJobObject(job, kind, limits)
        return job

    def _put_into(job: Any, pid: int) -> None:
        import pywintypes
        import win32api
        import win32con
        import win32job

        with contextlib.suppress(pywintypes.error):  # it has ended
            access = win32con.PROCESS_TERMINATE | win32con.PROCESS_SET_QUOTA
            process = win32api.OpenProcess(access, False, pid)
            win32job.AssignProcessToJobObject(job, process)
