"""Temporary chats, and a passphrase for saved ones: the disk is searched for a word of them."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from gptoss_local.harmony import Vocabulary
from tests.cli.conftest import READY, WORD, Terminal, chat_in_terminal, run_cli
from tests.conftest import RunningServer, run_server, wait_until
from tests.scripted_engine import Script, answer, calls, calls_built_in, run_scripted_server
from tests.server.page_client import Page

LONG = "\n".join(f"{n}. The {WORD} is behind door {n}." for n in range(60))  # its prefix is saved
FILE = f"notes.md:\n```\n{LONG}\n```\n\nWhat is the capital of France?"
PASSPHRASE = "correct horse"
OPEN = {"GPTOSS_PASSPHRASE": PASSPHRASE}
BRIEF = {"num_predict": 40}  # a sampled answer of nano may have no end
is_temporary = pytest.mark.parametrize("is_temporary", [True, False])


@pytest.fixture
def server(place: Path) -> Iterator[RunningServer]:
    """Starts a server of nano that saves prefixes; it ends, and saves, with `stop`."""
    settings = {"prefix_disk_bytes": "1000000000", "prefix_save_s": "0.5"}
    with run_server(place / "home", **settings) as running:
        yield running


def stop(server: RunningServer) -> None:
    server.process.terminate()
    server.process.wait()


def set_passphrase(environment: dict[str, str]) -> None:
    done = run_cli(environment, "passphrase", "set", stdin=f"{PASSPHRASE}\n")
    assert done.returncode == 0, done.stderr
    assert "without the passphrase they are lost" in done.stderr


@is_temporary
def test_every_way_to_chat(
    server: RunningServer, found: Callable[[], set[str]], is_temporary: bool
) -> None:
    """One file each for the page, a draft in the terminal, a line of `run`, and a long prompt."""
    chat_on_the_page(server, is_temporary)
    draft_in_the_terminal(server, found, is_temporary)
    ask_by_run(server, is_temporary)
    ask_in_every_dialect(server, is_temporary)
    stop(server)
    kept = {"chats.sqlite3", "drafts.json", "prefix", "run_history"}
    assert found() == (set() if is_temporary else kept)


def chat_on_the_page(server: RunningServer, is_temporary: bool) -> None:
    with Page(server) as page:
        chat_id = page.new(is_temporary=is_temporary, system=f"You know of {WORD}.", options=BRIEF)
        (system,) = page.tree(chat_id)
        first = page.answered(page.ask(chat_id, FILE, system["id"]))
        second = page.answered(page.ask(chat_id, f"And the {WORD}?", first["id"]))
        assert (first["state"], second["state"]) == ("done", "done")
        assert [t["content"] for t in page.tree(chat_id)][1] == FILE
        listed = [chat["id"] for chat in page.call("GET", "chats")["chats"]]
        assert (chat_id in listed) is not is_temporary
        assert bool(page.call("GET", f"chats?q={WORD}")["hits"]) is not is_temporary
        with page.listening(chat_id) as heard:  # as any chat
            page.answered(page.ask(chat_id, "What is the capital of Italy?", second["id"]))
            heard.until(
                lambda h: any(turn["content"] == second["content"] for turn in h.turns.values())
            )
        copy = page.call("POST", f"chats/{chat_id}/fork", {"turn_id": first["id"]})["id"]
        assert len(page.tree(copy)) == 3
        if is_temporary:
            page.call("DELETE", f"chats/{chat_id}")
            page.call("GET", f"chats/{chat_id}", status=404)


def draft_in_the_terminal(
    server: RunningServer, found: Callable[[], set[str]], is_temporary: bool
) -> None:
    with chat_in_terminal(server, "nano", *["--temporary"] * is_temporary) as terminal:
        terminal.read_until(READY)
        terminal.type(f"\x1b[200~{FILE}\x1b[201~\r")
        terminal.read_until("tok/s")
        terminal.type(f"A draft about {WORD}")
        terminal.read_until("A draft about")
        if not is_temporary:
            wait_until(lambda: "drafts.json" in found())
        else:
            terminal.read_until("temporary │ nano")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.process.wait()
        terminal.drain()
    assert ("gptoss chat --chat" in terminal.screen) is not is_temporary


def ask_by_run(server: RunningServer, is_temporary: bool) -> None:
    options = ["--temporary"] * is_temporary
    text = f"Read this.\n{LONG}\n\nWhat is the capital of France?"  # as no other way has sent it
    asked = run_cli(server.environment, "run", "nano", *options, stdin=text)
    assert asked.stdout.strip()
    with Terminal(server, "nano", *options, TERM="xterm") as terminal:
        terminal.read_until("Send a message")
        terminal.type(f"What is the capital of France, {WORD}?\r")
        terminal.read_until("\n")
        terminal.read_until(">>> ")
        terminal.type("/bye\r")
        terminal.process.wait()


def ask_in_every_dialect(server: RunningServer, is_temporary: bool) -> None:
    messages = [{"role": "user", "content": FILE}]
    bodies = {
        "/api/chat": {"messages": messages, "stream": False, "options": {"num_predict": 8}},
        "/api/generate": {"prompt": LONG, "raw": True, "options": {"num_predict": 1}},
        "/v1/chat/completions": {"messages": messages, "max_completion_tokens": 8},
        "/v1/completions": {"prompt": LONG, "max_tokens": 1},
        "/v1/responses": {"input": FILE, "max_output_tokens": 16},
        "/v1/messages": {"messages": messages, "max_tokens": 8},
    }
    with httpx.Client(base_url=server.url, timeout=None, trust_env=False) as http:
        for path, body in bodies.items():
            for retention, status in (("in_memory" if is_temporary else "24h", 200), ("no", 400)):
                sent = {"model": "nano", "prompt_cache_retention": retention} | body
                reply = http.post(path, json=sent)
                assert reply.status_code == status, (path, reply.text)
    assert "prompt_cache_retention" in reply.text


@is_temporary
def test_its_tools(
    place: Path, vocabulary: Vocabulary, found: Callable[[], set[str]], is_temporary: bool
) -> None:
    code = "import sys; print('noted', sys.argv[1]); print(sys.argv[1], file=sys.stderr)"
    (place / "config" / "gptoss").mkdir()
    (place / "config" / "gptoss" / "config.toml").write_text(f"""
[tools.note]
command = {json.dumps([sys.executable, "-c", code, "{text}"])}
description = "Notes."
parameters = {{ type = "object", properties = {{ text = {{ type = "string" }} }} }}
""")
    script = Script(vocabulary)
    script.otherwise(
        calls("note", {"text": WORD}, f"{WORD} is to be noted."),
        calls_built_in("python", f"print('{WORD}'.upper())"),
        answer(f"{WORD} is noted."),
    )
    with run_scripted_server(place / "home", script) as server, Page(server) as page:
        chat_id = page.new(is_temporary=is_temporary, options={"tools": "note,python"})
        page.ask(chat_id, f"Note {WORD}.")
        asked: set[int] = set()

        def is_over() -> bool:
            turns = page.tree(chat_id)
            for turn in turns:
                if turn["stats"].get("question") and turn["id"] not in asked:
                    asked.add(turn["id"])
                    body = {"turn_id": turn["id"], "scope": "once"}
                    page.call("POST", f"chats/{chat_id}/allow", body)
            return turns[-1]["content"] == f"{WORD} is noted."

        wait_until(is_over)
        results = [turn["content"] for turn in page.tree(chat_id) if turn["role"] == "tool"]
        assert f"noted {WORD}" in results[0]
        assert WORD.upper() in results[1]
        stop(server)
    assert found() == (set() if is_temporary else {"chats.sqlite3"})


def test_no_file_has_a_word_while_one_is_set(
    place: Path, server: RunningServer, found: Callable[[], set[str]]
) -> None:
    environment = server.environment
    with Page(server) as page:
        chat_id = page.new(title=WORD, options=BRIEF)
        page.answered(page.ask(chat_id, LONG))
        chatting = Terminal(server, "nano", TERM="xterm")
        chatting.read_until("Send a message")
        chatting.type(f"What is the capital of France, {WORD}?\r")
        chatting.read_until("\n")
        chatting.read_until(">>> ")
        drafting = chat_in_terminal(environment, "nano")
        drafting.read_until(READY)
        drafting.type(f"A draft about {WORD}")
        wait_until(lambda: found() >= {"drafts.json", "prefix", "run_history"})
        set_passphrase(environment)
        assert found() == set()
        drafting.type(f" and {WORD}")
        chatting.type(f"And the capital of {WORD}?\r")
        chatting.read_until("And the capital")
        for terminal in (drafting, chatting):
            terminal.process.send_signal(signal.SIGTERM)
            with pytest.raises((AssertionError, OSError)):  # it ends, and writes meanwhile
                terminal.read_until("no such text")
            terminal.process.wait()
            terminal.close()
        page.call("POST", "chats/unlock", {"passphrase": PASSPHRASE})
        leaf = page.tree(chat_id)[-1]
        page.answered(page.ask(chat_id, f"And now? {LONG}", leaf["id"]))
        assert page.call("GET", f"chats?q={WORD.lower()}")["hits"]
    stop(server)
    assert found() == set()
    exported = run_cli(environment | OPEN, "chats", str(chat_id), "--json").stdout
    assert exported.count(WORD) >= 120
    (place / "chat.json").write_text(exported)
    run_cli(environment | OPEN, "chats", "import", str(place / "chat.json"))
    (place / "chat.json").unlink()
    assert found() == set()
    assert WORD in run_cli(environment | OPEN, "chats", "-q", WORD).stdout
    assert run_cli(environment | OPEN, "passphrase", "remove").returncode == 0
    assert found() == {"chats.sqlite3"}
    assert WORD in run_cli(environment, "chats", "-q", WORD).stdout


def test_a_locked_server_answers_all_but_saved_chats(server: RunningServer) -> None:
    with Page(server) as page:
        chat_id = page.new()
        page.answered(page.ask(chat_id, "What is the capital of France?"))
        with page.listening(chat_id) as heard:
            set_passphrase(server.environment)
            heard.until(lambda h: h.is_over)
            assert heard.events[-1]["code"] == "HistoryLockedError"
        for method, path, body in (
            ("GET", "chats", None),
            ("GET", "chats/changes", None),
            ("GET", f"chats/{chat_id}", None),
            ("POST", f"chats/{chat_id}/ask", {"content": "And Italy?"}),
            ("POST", "chats", {"model": "nano"}),
            ("DELETE", f"chats/{chat_id}", None),
        ):
            said = page.call(method, path, body, status=423)
            assert said["error"]
            assert "passphrase" in said["hint"]
        temporary = page.new(is_temporary=True)
        with page.listening(temporary) as heard:
            assert page.answered(page.ask(temporary, "What is the capital of Italy?"))
            heard.until(lambda h: any(t["state"] == "done" for t in h.turns.values()))
        messages = [{"role": "user", "content": "What is the capital of Spain?"}]
        with httpx.Client(base_url=server.url, timeout=None, trust_env=False) as http:
            for path in ("/api/chat", "/v1/chat/completions", "/v1/messages"):
                sent = {"model": "nano", "messages": messages, "stream": False, "max_tokens": 9}
                assert http.post(path, json=sent).status_code == 200
            sent = {"passphrase": PASSPHRASE}
            assert http.post("/api/gptoss/chats/unlock", json=sent).status_code == 401
        wrong = page.call("POST", "chats/unlock", {"passphrase": "horse"}, status=423)
        assert "wrong" in wrong["error"]
        page.call("GET", "chats", status=423)
        page.call("POST", "chats/unlock", {"passphrase": PASSPHRASE})
        assert [chat["id"] for chat in page.call("GET", "chats")["chats"]] == [chat_id]
        with page.listening(chat_id) as heard:
            heard.until(lambda h: len(h.turns) == 2)


def test_a_server_unlocks_itself_with_the_variable(place: Path) -> None:
    home = place / "home"
    with run_server(home) as server, Page(server) as page:
        page.new()
        set_passphrase(server.environment)
    for variables, status in (({}, 423), (OPEN, 200), ({"GPTOSS_PASSPHRASE": "horse"}, 423)):
        with run_server(home, variables=variables) as server, Page(server) as page:
            page.call("GET", "chats", status=status)


def test_it_is_asked_for_in_a_terminal(fresh: dict[str, str]) -> None:
    def run(*arguments: str, types: list[tuple[str, str]]) -> int:
        with Terminal(fresh, *arguments[1:], command=arguments[0]) as terminal:
            for prompt, words in types:
                terminal.read_until(prompt)
                terminal.await_input()
                terminal.type(words + "\n")
            code = terminal.process.wait()
            assert not any(words in terminal.screen for _, words in types)
            return code

    new = [("New passphrase: ", "first one"), ("The same again: ", "first one")]
    assert run("passphrase", "set", types=[new[0], ("The same again: ", "frist")]) == 2
    assert run_cli(fresh, "chats").returncode == 0
    assert run("passphrase", "set", types=new) == 0
    assert run("chats", types=[("Passphrase: ", "first one")]) == 0
    assert run("chats", types=[("Passphrase: ", "wrong one")]) == 13
    changed = [("Passphrase: ", "first one"), ("New passphrase: ", "2nd"), ("again: ", "2nd")]
    assert run("passphrase", "change", types=changed) == 0
    assert run("passphrase", "remove", types=[("Passphrase: ", "first one")]) == 13
    refused = run_cli(fresh, "chats")
    assert refused.returncode == 13
    assert "GPTOSS_PASSPHRASE" in refused.stderr
    assert run_cli(fresh, "passphrase", "set").returncode == 2
    assert run_cli(fresh, "passphrase", "change", stdin="2nd\nthird\n").returncode == 0
    assert run_cli(fresh, "passphrase", "remove", stdin="third\n").returncode == 0
    again = run_cli(fresh, "passphrase", "remove")
    assert again.returncode == 2
    assert "passphrase set" in again.stderr


def test_a_change_leaves_no_old_key(place: Path, server: RunningServer) -> None:
    """Neither in the file nor in its log, while the server has both open."""

    def found() -> list[str]:
        files = (place / "home").glob("chats.sqlite3*")
        return [path.name for path in files if any(each in path.read_bytes() for each in old)]

    with Page(server) as page:
        chat_id = page.new()
        set_passphrase(server.environment)
        page.call("POST", "chats/unlock", {"passphrase": PASSPHRASE})
        for action, words in (("change", f"{PASSPHRASE}\nsecond\n"), ("remove", "second\n")):
            with closing(sqlite3.connect(place / "home" / "chats.sqlite3")) as database:
                (old,) = database.execute("SELECT key_id, salt, wrapped FROM passphrase")
                old += (database.execute("SELECT title FROM chat").fetchone()[0].encode(),)
            assert found()
            with page.listening(chat_id) as heard:
                done = run_cli(server.environment, "passphrase", action, stdin=words)
                assert done.returncode == 0, done.stderr
                assert found() == []
                if action == "change":  # a listener needs the new one
                    heard.until(lambda h: h.is_over)
            page.call("GET", "chats", status=423 if action == "change" else 200)
            if action == "change":
                page.call("POST", "chats/unlock", {"passphrase": PASSPHRASE}, status=423)
                page.call("POST", "chats/unlock", {"passphrase": "second"})
            assert page.call("GET", "chats")["chats"][0]["id"] == chat_id


READERS = (
    "from gptoss_local.server.chats import ChatStore as read",
    "from gptoss_local.cli.passphrase import open_history as read",
)


@pytest.mark.parametrize("reader", READERS)
def test_no_child_gets_it(fresh: dict[str, str], reader: str) -> None:
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "from gptoss_local.base.settings import environment_without_secrets as e\n"
        "from gptoss_local.base.settings import load_settings, unknown_variables as u\n"
        "print('GPTOSS_PASSPHRASE' in e(), 'GPTOSS_PASSPHRASE' in u())\n"
        f"{reader}\n"
        "read(load_settings() if read.__name__ == 'open_history' else Path('none'))\n"
        "print('GPTOSS_PASSPHRASE' in os.environ)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], env=fresh | OPEN, text=True)
    assert said.split() == ["False"] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep less private")
def test_memory_is_in_no_dump_and_no_debugger(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    monkeypatch.chdir(place / "tmp")
    try:
        with run_server(place / "home", variables=OPEN) as server, Page(server) as page:
            page.answered(page.ask(page.new(), "What is the capital of France?"))
            engine = server.engine()
            assert engine
            for process in (engine, psutil.Process(server.process.pid)):
                assert process.rlimit(resource.RLIMIT_CORE) == (0, 0)
                if os.geteuid():  # root may read everything
                    with pytest.raises(psutil.AccessDenied):
                        process.environ()
                process.send_signal(signal.SIGABRT)
                process.wait(timeout=60)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    assert list((place / "tmp").glob("core*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep less private")
def test_a_process_says_that_it_is_not_to_be_dumped() -> None:
    code = (
        "import ctypes; from gptoss_local.base.private import keep_memory_private as k; k();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    )
    assert subprocess.check_output([sys.executable, "-c", code]) == b"0\n"
