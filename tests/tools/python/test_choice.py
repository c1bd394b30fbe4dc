"""The setting `python_tool`: its two forms, and missing packages."""

import importlib.util
from pathlib import Path

import pytest

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.python.source import kernel_of

KERNELS = {" sandbox ": "", "jupyter:python3": "python3", "jupyter:conda-env.x_1": "conda-env.x_1"}
OTHERS = ("", "sandbox:x", "Sandbox", "none", "docker:x", "container:python:3.12")
OTHERS += ("jupyter", "jupyter:", "jupyter:a b", "jupyter:../x")


@pytest.mark.parametrize("text", KERNELS)
def test_forms(text: str) -> None:
    assert kernel_of(text) == KERNELS[text]


@pytest.mark.parametrize("text", OTHERS)
def test_other_forms(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a place where Python can run") as caught:
        Python(Settings(python_tool=text), tmp_path)
    for form in ("sandbox", "jupyter:KERNEL"):
        assert form in caught.value.hint


async def test_what_the_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission for one place is not one for another."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    about = {}
    identities = set()
    for text in ("sandbox", "jupyter:python3"):
        python = Python(Settings(python_tool=text), tmp_path)
        about[text] = python.about
        identities |= {tool.identity for tool in await python.tools()}
    assert len(identities) == 2
    assert about == {
        "sandbox": "runs Python code in a sandbox without files and network",
        "jupyter:python3": "runs Python code in your Jupyter kernel python3, as you",
    }


async def test_no_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    python = Python(Settings(python_tool="jupyter:python3"), tmp_path)
    with pytest.raises(ToolError, match=r"not installed\. Run .* -m pip install jupyter_client"):
        await python.tools()
