"""Runs code in a Jupyter kernel of the user's, which a kernel specification names."""

import importlib
import queue
import re
import time
from pathlib import Path
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import environment_without_secrets
from gptoss_local.talk.tools.python.driver import MOST_PRINTED, NO_OUTPUT, Output, Result
from gptoss_local.talk.tools.tool import MAX_OUTPUT_CHARACTERS

_START_S = 60.0
_INTERRUPT_S = 5.0  # time in which a kernel must stop after an interrupt
_POLL_S = 1.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class _KernelDiedError(Exception):
    pass


class JupyterEngine:
    """A kernel, started with the first call; after `timeout_s` a call is interrupted."""

    def __init__(self, name: str, timeout_s: float, folder: Path) -> None:
        self._name, self._timeout_s, self._folder = name, timeout_s, folder
        self._manager: Any = None  # jupyter_client.AsyncKernelManager; it is optional
        self._client: Any = None

    async def run(self, code: str) -> Result:
        if self._client is None:
            await self._start()
        output = Output(MAX_OUTPUT_CHARACTERS - 500)
        call = self._client.execute(code, allow_stdin=False)
        try:
            why, is_error = await self._follow(call, output, self._timeout_s)
            if not why:
                return Result(output.text() or NO_OUTPUT, is_error)
            await self._manager.interrupt_kernel()
            still, _ = await self._follow(call, output, _INTERRUPT_S)
        except _KernelDiedError:
            return Result(output.text(), is_error=True, stopped="The kernel died.")
        if still:
            stopped = f"{why} It did not stop when interrupted."
            return Result(output.text(), is_error=True, stopped=stopped)
        output.write("\n" * bool(output.n) + f"Error: {why} Variables are kept.")
        return Result(output.text(), is_error=True)

    async def _start(self) -> None:
        jupyter: Any = importlib.import_module("jupyter_client")
        manager = jupyter.AsyncKernelManager(kernel_name=self._name)
        try:
            await manager.start_kernel(
                cwd=str(self._folder), env=environment_without_secrets(), stderr=-3, stdout=-3
            )  # -3: DEVNULL
            self._manager = manager
            self._client = manager.client()
            self._client.start_channels()
            await self._client.wait_for_ready(timeout=_START_S)
        except jupyter.kernelspec.NoSuchKernel as error:
            known = ", ".join(sorted(jupyter.kernelspec.KernelSpecManager().find_kernel_specs()))
            message = f"there is no Jupyter kernel '{self._name}'; there are: {known or 'none'}"
            raise UsageError(message) from error
        except (OSError, RuntimeError) as error:
            message = f"the Jupyter kernel '{self._name}' does not start: {error}"
            raise UsageError(message) from error

    async def _follow(self, call: str, output: Output, timeout_s: float) -> tuple[str, bool]:
        """Collect output; return why the call is not over, empty if it is, and if it failed."""
        is_error = False
        end_s, n_most = time.monotonic() + timeout_s, output.n + MOST_PRINTED
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                message = await self._client.get_iopub_msg(timeout=min(left_s, _POLL_S))
            except queue.Empty:
                if not await self._manager.is_alive():
                    raise _KernelDiedError from None
                continue
            if message["parent_header"].get("msg_id") != call:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return "", is_error
            is_error |= kind == "error"
            output.write(_text_of(kind, content))
            if output.n > n_most:
                return f"The code printed more than {MOST_PRINTED // 1_000_000} MB.", True
        return f"The code took longer than {timeout_s:g} s.", True

    async def close(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
        if self._manager is not None:
            await self._manager.shutdown_kernel(now=True)


def _text_of(kind: str, content: dict[str, Any]) -> str:
    match kind:
        case "stream":
            return str(content["text"])
        case "execute_result" | "display_data" | "update_display_data":
            data = content["data"]
            others = [f"({each} is not shown)" for each in data if each.startswith("image/")]
            return "\n".join([str(data.get("text/plain", "")), *others]).strip("\n") + "\n"
        case "error":
            return _COLOURS.sub("", "\n".join(content["traceback"])) + "\n"
    return ""
