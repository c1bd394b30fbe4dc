"""The stream of changes, and answers that nobody looks at: real processes on one file of chats."""

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History
from tests.conftest import PATIENCE_S, RunningServer, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.page_client import Heard, Page

LONG = " ".join(f"word{n}" for n in range(300))
ODD = "Ünïcödé 👩‍🔬 and 漢字, " * 30
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


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say("Long?", answer(LONG, "Let me count. " * 5, holds_at=60))
    script.say("Slow?", answer(LONG, tok_s=30))
    script.say("Odd?\u2028\x85", answer(ODD, ODD, tok_s=100, holds_at=150))
    script.otherwise(answer("As you say."))
    return script


@pytest.fixture
def home(tmp_path: Path, nano_home: Path) -> Path:
    shutil.copytree(nano_home / "cache", tmp_path / "home" / "cache")
    return tmp_path / "home"


@pytest.fixture
def served(home: Path, script: Script) -> Iterator[RunningServer]:
    with run_scripted_server(home, script) as server:
        yield server


@pytest.fixture
def page(served: RunningServer) -> Iterator[Page]:
    with Page(served) as page:
        yield page


def settled(heard: Heard, turn_id: int) -> bool:
    return turn_id in heard.turns and heard.turns[turn_id]["state"] != "streaming"


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
            texts = heard.of("text")
            at = texts[-1]["at"]
            for name in ("content", "reasoning"):  # the pieces are all of it
                assert at[name] + len(texts[-1][name]) == len(stored[name])
        assert len(first.of("text")) < 40 * stored["stats"]["total_duration"] / 1e9 + 10
        assert first.of("progress")
        assert {each["status"] for each in first.of("progress")} <= {
            *("loading", "growing", "reading", "answering")
        }
        assert first.of("chats")[-1]["chats"][0]["title"] == "Odd?"


def test_two_tabs_and_another_process_lose_and_double_nothing(
    page: Page, served: RunningServer
) -> None:
    chat_id = page.new()
    path = served.home / "chats.sqlite3"
    with page.listening(chat_id) as first, page.listening(chat_id) as second:
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(chat_id), name])
            for name in ("one", "two")
        ]
        asked = [page.ask(chat_id, f"tab {n}") for n in range(10)]
        for writer in writers:
            assert writer.wait() == 0
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
        assert page.call("GET", f"chats/{chat_id}")["chat"]["n_turns"] == 100


def test_changes_by_another_process_arrive(page: Page, served: RunningServer) -> None:
    chat_id = page.new()
    history = History(served.home / "chats.sqlite3")
    try:
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
            history.rename(chat_id, "Renamed")
            heard.until(lambda heard: heard.of("chat")[-1]["chat"]["title"] == "Renamed")
            history.delete(chat_id)
            heard.until(lambda heard: heard.of("deleted"))
            assert heard.of("deleted") == [{"event": "deleted", "chat_id": chat_id}]
            list_only.until(lambda heard: heard.of("chats")[-1]["chats"] == [])
    finally:
        history.close()


def test_an_answer_of_a_process_that_died_becomes_stopped(
    page: Page, served: RunningServer
) -> None:
    chat_id = page.new()
    dying = (
        "import os, sys; from pathlib import Path; from gptoss_local.talk.history import History;"
        "h = History(Path(sys.argv[1]));"
        "h.add(int(sys.argv[2]), None, 'assistant', 'half', state='streaming'); os._exit(1)"
    )
    with page.listening(chat_id) as heard:
        path = str(served.home / "chats.sqlite3")
        subprocess.run([sys.executable, "-c", dying, path, str(chat_id)], check=False)
        heard.until(lambda h: [t["state"] for t in h.turns.values()] == ["stopped"])


def test_a_killed_server_costs_the_last_second(home: Path, script: Script) -> None:
    with run_scripted_server(home, script, is_process=True) as server, Page(server) as page:
        chat_id = page.new()
        with page.listening(chat_id) as heard:
            turn = page.ask(chat_id, "Slow?")
            heard.until(lambda h: len(h.turns.get(turn["id"], {}).get("content", "")) > 300)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            heard.until(lambda heard: heard.is_over)
            seen = heard.turns[turn["id"]]["content"]
    with run_scripted_server(home, script) as server, Page(server) as page:
        left = page.turn(turn)
        assert left["state"] == "stopped"
        assert seen.startswith(left["content"])
        words_of_a_second = 30  # tokens, of which a word has two or three
        assert len(left["content"].split()) > len(seen.split()) - words_of_a_second
        page.call("POST", f"chats/{chat_id}/continue", {"turn_id": turn["id"]})
        assert page.answered(turn)["content"].startswith(left["content"])


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_server_that_ends_gives_answers_their_grace(
    home: Path, script: Script, listens: bool, goes_on: bool
) -> None:
    """A tab that only listens does not hold it up."""
    grace_s = str(PATIENCE_S) if goes_on else "1"
    with run_scripted_server(home, script, grace_s=grace_s) as server, Page(server) as page:
        chat_id = page.new()
        with page.listening(chat_id) as heard:
            turn = page.ask(chat_id, "Long?")
            heard.until(lambda h: len(h.turns.get(turn["id"], {}).get("content", "")) > 20)
            seen = heard.turns[turn["id"]]["content"]
            if listens:
                end(server, script, goes_on)
                heard.until(lambda heard: heard.is_over)
                seen = heard.turns[turn["id"]]["content"]
                assert not goes_on or seen == LONG
        if not listens:
            end(server, script, goes_on)
    history = History(home / "chats.sqlite3")
    left = history.turn(turn["id"])
    history.close()
    assert left.state == ("done" if goes_on else "stopped")
    assert left.content == LONG if goes_on else left.content.startswith(seen)


def end(server: RunningServer, script: Script, goes_on: bool) -> None:
    thread: Any = server.process
    thread.terminate()
    wait_until(lambda: (goes_on and script.go_on()) or not thread.is_alive())


def test_a_client_that_does_not_read_is_dropped_and_keeps_nobody_waiting(
    page: Page, served: RunningServer
) -> None:
    chat_id = page.new()
    port = int(served.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as deaf:
        deaf.sendall(
            f"GET /api/gptoss/chats/changes?chat={chat_id} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"X-Gptoss-Token: {page.token}\r\n\r\n".encode()
        )
        assert deaf.recv(10)
        history = History(served.home / "chats.sqlite3")
        with page.listening(chat_id) as heard:
            text = "line\n" * 200_000  # 1 MB; each of these waits for the deaf one
            for n in range(30):
                turn = history.add(chat_id, None, "user", f"{n} {text}")
                heard.until(lambda heard, asked=turn.id: asked in heard.turns)
            assert page.answered(page.ask(chat_id, "Quick?"))["content"] == "As you say."
        history.close()
        received = 0
        while piece := deaf.recv(1 << 20):
            received += len(piece)
            if received > 25 << 20 or piece.endswith(b"0\r\n\r\n"):
                break
    assert received < 25 << 20  # it ended, and did not get all 30 MB
