"""`gptoss chats`: list, search and print chats."""

import json
import os
from pathlib import Path

import pytest

from gptoss_local.talk.history import History
from tests.cli.conftest import in_terminal, run_cli
from tests.history.test_history_import import CHATGPT

pytestmark = pytest.mark.quick


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user with two chats; no server runs, and none is needed."""
    history = History(tmp_path / "chats.sqlite3")
    for title, answer in (("Capitals", "Paris is the \x1b[31mcapital."), ("Sums", "42")):
        chat_id = history.new_chat("nano", "low", title)
        question = history.add(chat_id, None, "user", f"A question of {title.lower()}?")
        history.add(chat_id, question.id, "assistant", answer)
    history.close()
    return os.environ | {"GPTOSS_HOME": str(tmp_path)}


def test_list_search_and_print(environment: dict[str, str]) -> None:
    header, *rows = run_cli(environment, "chats").stdout.splitlines()
    assert header.split() == ["CHAT", "TITLE", "MODEL", "TURNS", "UPDATED"]
    assert [row.split()[:4] for row in rows] == [
        ["2", "Sums", "nano", "2"],
        ["1", "Capitals", "nano", "2"],
    ]
    data = json.loads(run_cli(environment, "chats", "--json", "-n", "1").stdout)
    assert (data["version"], [chat["title"] for chat in data["chats"]]) == (1, ["Sums"])
    header, *rows = run_cli(environment, "chats", "-q", "paris").stdout.splitlines()
    assert header.split() == ["CHAT", "TITLE", "FOUND"]
    assert [row.split() for row in rows] == [["1", "Capitals", "Paris", "is", "the", "capital."]]
    (hit,) = json.loads(run_cli(environment, "chats", "-q", "42", "--json").stdout)["hits"]
    assert (hit["chat_id"], hit["snippet"]) == (2, "42")
    nothing = run_cli(environment, "chats", "--query", 'NEAR("')
    assert (nothing.returncode, len(nothing.stdout.splitlines())) == (0, 1)
    shown = run_cli(environment, "chats", "1").stdout
    assert shown.startswith("# Capitals\n")
    assert shown.endswith(
        "## You\n\nA question of capitals?\n\n## Assistant\n\nParis is the \x1b[31mcapital.\n"
    )


@pytest.mark.skipif(os.name != "posix", reason="no pty on Windows")
def test_matches_are_bold_in_a_terminal(environment: dict[str, str]) -> None:
    search = ("chats", "-q", "paris")
    assert "\x1b[1mParis\x1b[0m is the capital." in in_terminal(environment, *search)
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in in_terminal(environment | variables, *search)


def test_import(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    exported = run_cli(environment, "chats", "1", "--json").stdout
    assert [turn["role"] for turn in json.loads(exported)["turns"]] == ["user", "assistant"]
    file.write_text(exported, encoding="utf-8")
    done = run_cli(environment, "chats", "import", str(file))
    assert done.stdout == "Imported as chat 3: gptoss chat --chat 3\n"
    assert run_cli(environment, "chats", "3").stdout == run_cli(environment, "chats", "1").stdout
    done = run_cli(environment, "chats", "import", str(file), "--json")
    assert json.loads(done.stdout)["chat_id"] == 4
    chatgpt = [CHATGPT, CHATGPT | {"title": "Again"}]
    file.write_text(json.dumps(chatgpt), encoding="utf-8")
    done = run_cli(environment, "chats", "import", str(file))
    assert done.stdout == "Imported 2 chats: gptoss chats\n"
    assert "Not imported: 2 citations, 2 custom instructions, 4 images, 2 tool calls" in done.stderr
    assert "## Assistant\n\n> Adding" in run_cli(environment, "chats", "6").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["9"], 3, "no chat 9"),
        (["1", "-q", "x"], 2, ""),
        (["import"], 2, "which file?"),
        (["x"], 2, "is not the number of a chat"),
        (["import", "{home}/none.json"], 2, "there is no file"),
        (["1", "{home}/chat.md"], 2, "not written to a file"),
        (["import", "{home}/chats.sqlite3"], 2, "not an exported chat"),
    ],
)
def test_errors(environment: dict[str, str], arguments: list[str], code: int, words: str) -> None:
    filled = [each.format(home=environment["GPTOSS_HOME"]) for each in arguments]
    done = run_cli(environment, "chats", *filled)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_a_damaged_file_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "chats.sqlite3").write_bytes(b"junk" * 999)
    damaged = run_cli(environment, "chats")
    assert damaged.returncode == 12
    assert "Traceback" not in damaged.stderr
    assert "chats.sqlite3" in damaged.stderr
