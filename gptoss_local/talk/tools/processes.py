"""Ends a program of a tool with all that it has started."""

import asyncio
import contextlib
import os
import signal
import sys


def kill_tree(process: asyncio.subprocess.Process) -> None:
    """Kill a process that was started in a session of its own, and its descendants."""
    if sys.platform == "win32":
        import psutil

        with contextlib.suppress(psutil.Error):  # there are no groups that could be killed
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
