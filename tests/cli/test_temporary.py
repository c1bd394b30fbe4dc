"""Temporary chats: each byte under the home folder is searched for a word that was in them."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.cli.conftest import WORD, Terminal, run_cli
from tests.cli.test_chat_command import READY, ChatTerminal
from tests.conftest import RunningServer, run_server, wait_until
from tests.scripted_engine import Script, answer, calls, calls_built_in, run_scripted_server
from tests.server.page_client import Page

LONG = "\n".join(f"{n}. The {WORD} is behind door {n}." for n in range(60))  # its prefix is saved
FILE = f"notes.md:\n```\n{LONG}\n```\n\nWhat is the capital of France?"
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
        chat_id = page.new(is_temporary=is_temporary, system=f"You know of {WORD}.")
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


def draft_in_the_terminal(
    server: RunningServer, found: Callable[[], set[str]], is_temporary: bool
) -> None:
    terminal = ChatTerminal(server.environment, "nano", *["--temporary"] * is_temporary)
    terminal.read_until(READY)
    try:
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
    finally:
        terminal.close()
    assert ("gptoss chat --chat" in terminal.screen) is not is_temporary


def ask_by_run(server: RunningServer, is_temporary: bool) -> None:
    options = ["--temporary"] * is_temporary
    asked = run_cli(server.environment, "run", "nano", *options, stdin=FILE)
    assert asked.stdout.strip()
    terminal = Terminal(server, "nano", *options, TERM="xterm")
    try:
        terminal.read_until("Send a message")
        terminal.type(f"What is the capital of France, {WORD}?\r")
        terminal.read_until("\n")
        terminal.read_until(">>> ")
        terminal.type("/bye\r")
        terminal.process.wait()
    finally:
        terminal.close()


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
