"""Starts a program of a tool, and ends it with all its children.

Linux has sessions for that. Windows has jobs, whose processes end with the last handle, also by the
end of this process.
"""

import asyncio
import contextlib
import os
import signal
import sys
import weakref
from typing import Any

_PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
_jobs: weakref.WeakKeyDictionary[asyncio.subprocess.Process, Any] = weakref.WeakKeyDictionary()


async def start(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program with the options of `asyncio.create_subprocess_exec`, and pipes by default.

    Raises OSError.
    """
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
