"""The setting `python_tool`: its two forms, and missing packages."""

import importlib.util
from pathlib import Path

import pytest

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.python.source import Choice, parse_choice


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        (" sandbox ", Choice("sandbox")),
        ("jupyter:python3", Choice("jupyter", "python3")),
        ("jupyter:conda-env.x_1", Choice("jupyter", "conda-env.x_1")),
    ],
)
def test_forms(text: str, choice: Choice) -> None:
    assert parse_choice(text) == choice


OTHERS = ("", "sandbox:x", "Sandbox", "none", "docker:x", "podman:python")
OTHERS += ("jupyter", "jupyter:", "jupyter:a b", "jupyter:../x")
CONTAINERS = ("container", "container:", "container:python:3.12")


@pytest.mark.parametrize("text", [*OTHERS, *CONTAINERS])
def test_other_forms(text: str, tmp_path: Path) -> None:
    """Containers are refused by name."""
    said = "run in containers" if text in CONTAINERS else "is not a place where Python can run"
    with pytest.raises(UsageError, match=said) as caught:
        Python(Settings(python_tool=text), tmp_path)
    for form in ("sandbox", "jupyter:KERNEL"):
        assert form in caught.value.hint


async def test_what_the_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission for one place is not one for another."""
    monkeypatch.setattr(Choice, "check", lambda self: None)
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
    with pytest.raises(UsageError, match="needs jupyter_client"):
        await python.run({"code": "1"})
