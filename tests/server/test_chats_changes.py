"""The stream of changes, and answers that nobody looks at: real processes on one file of chats."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.chats import changes
from gptoss_local.talk.history import History
from tests.conftest import PATIENCE_S, RunningServer, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.page_client import Heard, Page

LONG = " ".join(f"word{n}" for n in range(300))
ODD = "Ünïcödé 👩‍🔬 and 漢字, " * 10
WRITER = """
import sys, time
from pathlib import Path
from gptoss_local.talk.history import History
history, chat_id, name = History(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
for n in range(20):
    asked = history.add(chat_id, None, "user", f"{name} {n}")
    turn = history.add(chat_id, asked.id, "assistant", "", state="streaming")
    history.update(turn.id, content=f"half of {n}", state="streaming")
    time.sleep(0.02)
    history.update(turn.id, content=f"answer {name} {n}", state="done")
history.close()
"""
DYING = """
import os, sys
from pathlib import Path
from gptoss_local.talk.history import History
history = History(Path(sys.argv[1]))
history.add(int(sys.argv[2]), None, "assistant", "half", state="streaming")
os._exit(1)
"""


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say("Long?", answer(LONG, "Let me count. " * 5, holds_at=60))
    script.say("Odd?\u2028\x85", answer(ODD, ODD, tok_s=200, holds_at=150))
    script.otherwise(answer("As you say."))
    return script


@pytest.fixture
def home(tmp_path: Path, nano_home: Path) -> Path:
    (tmp_path / "cache").symlink_to(nano_home / "cache")
    return tmp_path


@pytest.fixture
def served(home: Path, script: Script) -> Iterator[RunningServer]:
    with run_scripted_server(home, script) as server:
        yield server


@pytest.fixture
def history(served: RunningServer) -> Iterator[History]:
    """The chats as a terminal has them."""
    opened = History(served.home / "chats.sqlite3")
    yield opened
    opened.close()


@pytest.fixture
def page(served: RunningServer) -> Iterator[Page]:
    with Page(served) as page:
        yield page


def settled(heard: Heard, turn_id: int) -> bool:
    return turn_id in heard.turns and heard.turns[turn_id]["state"] != "streaming"


@pytest.mark.quick
def test_an_answer_arrives_in_all_tabs_without_gaps(page: Page, script: Script) -> None:
    chat_id = page.new()
    with page.listening(chat_id) as first, page.listening(chat_id) as second:
        turn = page.ask(chat_id, "Odd?\u2028\x85")  # in lines of JSON, where they end no line
        first.until(lambda heard: heard.of("text"))
        with page.listening(chat_id) as late:  # in the middle of a word, perhaps
            wait_until(lambda: script.go_on() or settled(first, turn["id"]))
            for heard in (second, late):
                heard.until(lambda heard: settled(heard, turn["id"]))
        stored = page.turn(turn)
        for heard in (first, second, late):
            assert not heard.gaps
            assert heard.turns[turn["id"]] == stored
        assert len(first.of("text")) < 40 * stored["stats"]["total_duration"] / 1e9 + 10
        assert first.of("progress")
        assert first.of("chats")[-1]["chats"][0]["title"] == "Odd?"
    with page.listening(chat_id) as later:  # an earlier stream told the tab that it answers
        assert [event["answering"] for event in later.of("answering")] == [[]]


def test_two_tabs_and_another_process_lose_and_double_nothing(
    page: Page, served: RunningServer
) -> None:
    chat_id = page.new()
    path = served.home / "chats.sqlite3"
    with page.listening(chat_id) as first, page.listening(chat_id) as second:
        command = [sys.executable, "-c", WRITER, str(path), str(chat_id)]
        writers = [subprocess.Popen([*command, name]) for name in ("one", "two")]
        asked = [page.ask(chat_id, f"tab {n}") for n in range(10)]
        assert [writer.wait() for writer in writers] == [0, 0]
        for turn in asked:
            page.answered(turn)
        tree = {turn["id"]: turn for turn in page.tree(chat_id)}
        for heard in (first, second):
            heard.until(lambda heard: heard.turns == tree)
            assert not heard.gaps
    questions = [t["content"] for t in tree.values() if t["role"] == "user"]
    said = [f"{name} {n}" for name in ("one", "two") for n in range(20)]
    assert sorted(questions) == sorted([*said, *(f"tab {n}" for n in range(10))])
    answers = [t for t in tree.values() if t["role"] == "assistant"]
    assert len({t["parent_id"] for t in answers}) == len(answers) == 50
    assert {t["state"] for t in answers} == {"done"}


def test_changes_by_another_process_arrive(
    page: Page, history: History, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is stopped once its process has died."""
    monkeypatch.setattr(changes, "_ORPHANS_S", 0.5)
    chat_id = page.new()
    with page.listening(chat_id) as heard, page.listening() as list_only:
        turn = history.add(chat_id, None, "user", "from a terminal")
        heard.until(lambda heard: turn.id in heard.turns)
        list_only.until(lambda heard: heard.of("chats")[-1]["chats"][0]["n_turns"] == 1)
        assert not list_only.of("turn")
        streaming = history.add(chat_id, turn.id, "assistant", "", state="streaming")
        for text in ("a", "a b", "a b c"):
            history.update(streaming.id, content=text, state="streaming")
            heard.until(lambda h, t=text: h.turns.get(streaming.id, {}).get("content") == t)
        for path in ("stop", "fork"):
            body = {"turn_id": streaming.id}
            reply = page.call("POST", f"chats/{chat_id}/{path}", body, status=409)
            assert reply["code"] == "AnsweringError"
        history.update(streaming.id, content="a b c d", state="done")
        heard.until(lambda heard: settled(heard, streaming.id))
        command = [sys.executable, "-c", DYING, str(home / "chats.sqlite3"), str(chat_id)]
        subprocess.run(command, check=False)
        heard.until(lambda h: [t["content"] for t in h.turns.values() if t["state"] == "stopped"])
        history.rename(chat_id, "Renamed")
        heard.until(lambda heard: heard.of("chat")[-1]["chat"]["title"] == "Renamed")
        history.delete(chat_id)
        heard.until(lambda heard: heard.of("deleted"))
        assert heard.of("deleted") == [{"event": "deleted", "chat_id": chat_id}]
        list_only.until(lambda heard: heard.of("chats")[-1]["chats"] == [])


@pytest.mark.parametrize("listens", [True, False])
def test_a_server_that_ends_gives_answers_their_grace(
    home: Path, script: Script, listens: bool
) -> None:
    """A tab that only listens does not hold it up."""
    with run_scripted_server(home, script, grace_s=str(PATIENCE_S)) as server, Page(server) as page:
        chat_id = page.new()
        thread: Any = server.process

        def end() -> None:
            thread.terminate()
            wait_until(lambda: script.go_on() or not thread.is_alive())

        with page.listening(chat_id) as heard:
            turn = page.ask(chat_id, "Long?")
            heard.until(lambda h: len(h.turns.get(turn["id"], {}).get("content", "")) > 20)
            if listens:
                end()
                heard.until(lambda heard: heard.is_over)
                assert heard.turns[turn["id"]]["content"] == LONG
        if not listens:
            end()
    with closing(History(home / "chats.sqlite3")) as chats:
        left = chats.turn(turn["id"])
    assert (left.state, left.content) == ("done", LONG)


def test_a_client_that_does_not_read_keeps_nobody_waiting_and_costs_no_memory(
    page: Page, history: History
) -> None:
    """It gets the state as it is once it reads again, not each change before."""
    chat_id = page.new()
    port = int(page.url.rpartition(":")[2])
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        deaf.settimeout(PATIENCE_S)
        deaf.connect(("127.0.0.1", port))
        deaf.sendall(
            f"GET /api/gptoss/chats/changes?chat={chat_id} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"X-Gptoss-Token: {page.token}\r\n\r\n".encode()
        )
        assert deaf.recv(10)
        with page.listening(chat_id) as heard:
            turn = history.add(chat_id, None, "assistant", "", state="streaming")
            for n in range(24):  # of 500 kB
                text = f"{n} " + "line\n" * 100_000
                history.update(turn.id, content=text, state="streaming")
                heard.until(lambda h, t=text: h.turns.get(turn.id, {}).get("content") == t)
            assert page.answered(page.ask(chat_id, "Quick?"))["content"] == "As you say."
        received = b""
        while b"As you say." not in received:
            received += deaf.recv(1 << 20)
    assert len(received) < 10 << 20
