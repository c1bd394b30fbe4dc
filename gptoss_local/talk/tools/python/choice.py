"""Read `python_tool` of the settings."""

import importlib.util
import re
import sys
from typing import Literal, NamedTuple

from gptoss_local.errors import UsageError

_FORMS = "Write sandbox, or jupyter:KERNEL, such as jupyter:python3."
_KERNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Choice(NamedTuple):
    kind: Literal["sandbox", "jupyter"]
    name: str = ""

    @property
    def about(self) -> str:
        """Describe it for the user, after "It"."""
        if self.kind == "jupyter":
            return f"runs Python code in your Jupyter kernel {self.name}, as you"
        return "runs Python code in a sandbox without files and network"

    def told(self, timeout_s: float) -> str:
        """Source: `ToolNamespaceConfig.python` of openai-harmony, for the first part."""
        limits = {
            "sandbox": "It has no files, no network, and a part of the standard library only.",
            "jupyter": "It may read and write the user's files.",
        }[self.kind]
        return (
            "Use this tool to execute Python code in your chain of thought. The code will not be "
            "shown to the user. This tool should be used for internal reasoning, but not for code "
            "that is intended to be visible to the user.\n\n"
            "When you send a message containing Python code to python, it will be executed in a "
            "stateful environment. python will respond with the output of the execution or time "
            f"out after {timeout_s:.1f} seconds. {limits}"
        )

    def check(self) -> None:
        """Raise UsageError if a package that it needs is not installed."""
        if self.kind == "jupyter" and importlib.util.find_spec("jupyter_client") is None:
            raise UsageError(
                f"python_tool {self.kind}:{self.name} needs jupyter_client, which is not installed",
                hint=f"Run {sys.executable} -m pip install jupyter_client",
            )


def parse_choice(text: str) -> Choice:
    """Read the setting. Raises UsageError if it names no place where code can run."""
    kind, colon, name = text.strip().partition(":")
    if kind == "sandbox" and not colon:
        return Choice("sandbox")
    if kind == "jupyter" and _KERNEL.fullmatch(name):
        return Choice("jupyter", name)
    if kind == "container":
        raise UsageError(f"python_tool {text!r}: Python does not run in containers", hint=_FORMS)
    raise UsageError(f"python_tool {text!r} is not a place where Python can run", hint=_FORMS)
