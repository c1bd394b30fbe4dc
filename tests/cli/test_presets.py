"""`gptoss presets`, and `gptoss chat --preset`."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from gptoss_local.talk.history import History
from gptoss_local.talk.presets import Preset, presets_path, save_preset
from tests.cli.conftest import PseudoTerminal, run_cli
from tests.conftest import RunningServer


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save_preset("reviewer", Preset(system="You review code.\nBe terse.", options={"seed": 7}))
    save_preset("日本", Preset(effort="low"))
    return os.environ | {"GPTOSS_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


def test_they_are_listed(environment: dict[str, str]) -> None:
    done = run_cli(environment, "presets")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["NAME", "EFFORT", "OPTIONS", "SYSTEM"]
    assert rows.pop(0).split() == ["policy", "medium", "temperature", "0.0"]
    assert [row.split(maxsplit=4) for row in rows] == [
        ["reviewer", "-", "seed", "7", "You review code. Be terse."],
        ["日本", "low", "-"],
    ]
    assert str(presets_path()) in done.stderr
    data = json.loads(run_cli(environment, "presets", "--json").stdout)
    assert data == {
        "version": 1,
        "file": str(presets_path()),
        "presets": [
            {"name": "policy", "system": "", "effort": "medium", "options": {"temperature": 0.0}},
            {
                "name": "reviewer",
                "system": "You review code.\nBe terse.",
                "effort": None,
                "options": {"seed": 7},
            },
            {"name": "日本", "system": "", "effort": "low", "options": {}},
        ],
    }


def test_a_chat_line_by_line_begins_with_one(
    environment: dict[str, str], server: RunningServer, nano_home: Path, tmp_path: Path
) -> None:
    """Its system message is sent, and all questions are of one stored chat."""
    shutil.copytree(nano_home / "cache", tmp_path / "cache")
    save_preset("guard", Preset(system="The passcode is quiet-river-42."))
    command = [sys.executable, "-m", "gptoss_local", "chat", "nano", "--preset", "guard"]
    variables = server.environment | environment | {"TERM": "dumb"}
    terminal = PseudoTerminal([*command, "--effort", "low"], variables, tmp_path)
    try:
        terminal.read_until(">>> ")
        terminal.type("What is the passcode?\n")
        terminal.read_until("The passcode is quiet-river-42.")
        terminal.type("What is 17 + 25?\n")
        terminal.read_until("17 + 25 = 42")
        terminal.type("/bye\n")
        terminal.read_until("gptoss chat --chat 1")
    finally:
        terminal.close()
    history = History(tmp_path / "chats.sqlite3")
    (chat,) = history.chats()
    roles = [turn.role for turn in history.branch(chat.leaf_id)]
    history.close()
    assert roles == ["system", *2 * ["user", "assistant"]]


def test_a_policy_judges_a_text(
    environment: dict[str, str], server: RunningServer, tmp_path: Path
) -> None:
    """It is the system message, as the same text after --system is."""
    policy = tmp_path / "policy.md"
    policy.write_text("You are a pirate.")
    asking = server.environment | {"XDG_CONFIG_HOME": environment["XDG_CONFIG_HOME"]}
    question = ("run", "nano", "What is the capital of France?", "--hide-reasoning")
    by_preset = run_cli(asking, *question, "--preset", "Policy", "--system-file", str(policy))
    by_hand = run_cli(asking, *question, "--system", "You are a pirate.", "--temperature", "0")
    assert by_preset.returncode == 0, by_preset.stderr
    assert by_preset.stdout == by_hand.stdout
    for options, said in (
        (["--preset", "policy"], "needs a policy"),
        (["--system-file", str(policy), "--system", "Hi"], "two system messages"),
        (["--system-file", str(tmp_path / "none.md")], "there is no file"),
        (["--preset", "polcy"], "Did you mean policy?"),
    ):
        refused = run_cli(asking, *question, *options)
        assert (refused.returncode, refused.stdout) in ((2, ""), (3, ""))
        assert said in refused.stderr
