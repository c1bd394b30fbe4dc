"""The page, its files, and the endpoints of its chats, on a server with a scripted model."""

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server import web
from gptoss_local.talk.history import MATCH_END, MATCH_START
from tests.conftest import RunningServer, give_nano, wait_until
from tests.history.test_history_import import CHATGPT
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.page_client import Page

LONG = " ".join(f"word{n}" for n in range(400))
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say("Quick?", answer("Yes.", "Easy."))
    script.say("Long?", answer(LONG, "Let me count.", holds_at=60))
    script.say("Thinks?", answer("Yes.", LONG, holds_at=60))
    script.say("Breaks?", answer(LONG, fails_at=9))
    script.say("Dies?", answer(LONG, dies_at=9))
    script.otherwise(answer("As you say."))
    return script


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, nano_home: Path, script: Script
) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("chats")
    give_nano(nano_home, home / "cache")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))  # where presets are
        with run_scripted_server(home, script, context_length="4096") as server:
            yield server


@pytest.fixture
def page(served: RunningServer) -> Iterator[Page]:
    with Page(served) as page:
        yield page


def test_a_browser_gets_the_page_and_all_others_what_they_look_for(served: RunningServer) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        page = http.get("/", headers=HTML)
        assert page.text.startswith("<!doctype html>")
        assert "@" not in page.text  # nothing was left to fill in
        assert '<meta name="gptoss-key" content="no">' in page.text
        policy = page.headers["content-security-policy"]
        for rule in ("default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"):
            assert rule in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        foreign = ("http://localhost:3000", "app://x", "tauri://localhost")
        others: list[dict[str, str]] = [HTML | {"origin": origin} for origin in foreign]
        for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}, *others):
            plain = http.get("/", headers=headers)
            assert plain.text == "Ollama is running"
            assert "accept" in plain.headers["vary"].lower()
        assert http.head("/").status_code == 200


def test_files_of_the_page(served: RunningServer) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        reply = http.get("/web/theme.js", headers={"accept-encoding": "gzip"})
        assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
        assert reply.headers["content-encoding"] == "gzip"
        assert reply.content == (web.FOLDER / "theme.js").read_bytes()
        plain = http.get("/web/theme.js", headers={"accept-encoding": "identity"})
        assert plain.content == reply.content
        assert "content-encoding" not in plain.headers
        assert "default-src 'none'" in plain.headers["content-security-policy"]
        again = http.get("/web/theme.js", headers={"if-none-match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for path in (
            *("__init__.py", "index.html", "nope.js", "", "vendor", "theme.js%00"),
            *("..%2f__init__.py", "%2e%2e/errors.py", "..%5c..%5cpyproject.toml"),
        ):
            assert http.get(f"/web/{path}").status_code in (400, 404), path


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "vscode-webview://x"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example", "origin": "http://evil.example"},  # a rebound name
    ],
)
def test_other_origins_do_no_harm(
    page: Page, served: RunningServer, headers: dict[str, str]
) -> None:
    """Even where such a page has got hold of the token, and also by a form, which asks nobody."""
    url, chat_id = f"{served.url}/api/gptoss/chats", page.new()
    preflight = headers | {"access-control-request-method": "DELETE"}
    for extra in ({}, {"x-gptoss-token": page.token}):
        form = headers | extra | {"content-type": "application/x-www-form-urlencoded"}
        for method, path in (("POST", ""), ("PATCH", f"/{chat_id}"), ("DELETE", f"/{chat_id}")):
            reply = httpx.request(method, url + path, headers=form, content=b"title=gone")
            assert reply.status_code == 403
            assert "access-control-allow-origin" not in reply.headers
    assert httpx.options(f"{url}/{chat_id}", headers=preflight).status_code in (401, 403)
    assert page.tree(chat_id) == []
    assert "access-control-allow-origin" not in page.http.get("/api/gptoss/chats").headers


@pytest.mark.quick
def test_list_and_search(page: Page) -> None:
    first, second = page.new(), page.new()
    page.answered(page.ask(first, "The question about marmalade"))
    page.answered(page.ask(second, "Another one"))
    listed = page.call("GET", "chats")["chats"]
    assert [chat["id"] for chat in listed][:2] == [second, first]
    assert listed[0]["title"] == "Another one"
    page.call("PATCH", f"chats/{first}", {"is_pinned": True})
    listed = page.call("GET", "chats?limit=1")["chats"]
    assert [chat["id"] for chat in listed] == [first]
    (hit,) = page.call("GET", "chats?q=marmalade")["hits"]
    assert hit["chat_id"] == first
    assert f"{MATCH_START}marmalade{MATCH_END}" in hit["snippet"]
    assert page.call("GET", "chats?q=")["hits"] == []
    page.call("PATCH", f"chats/{first}", {"is_pinned": False})


def test_a_chat_begins_as_chosen(page: Page, script: Script) -> None:
    options = {"temperature": 0.5, "num_ctx": 2048}
    body = {"effort": "high", "preset": "Pirate", "system": "Talk like a pirate."}
    chat = page.call("POST", "chats", {"model": "nano", "options": options, **body})
    assert (chat["effort"], chat["preset"], chat["n_turns"]) == ("high", "Pirate", 1)
    assert chat["options"] == options
    (system,) = page.tree(chat["id"])
    assert (system["role"], system["content"]) == ("system", "Talk like a pirate.")
    turn = page.ask(chat["id"], "Quick?", system["id"])
    assert (turn["state"], turn["model"], turn["effort"]) == ("streaming", "nano", "high")
    done = page.answered(turn)
    assert (done["content"], done["reasoning"], done["state"]) == ("Yes.", "Easy.", "done")
    stats = done["stats"]
    for name in ("eval_count", "eval_duration", "prompt_eval_count", "ttft_s", "latencies_ms"):
        assert stats[name], name
    assert stats["done_reason"] == "stop"
    assert "tokens" not in stats  # they are in the file
    prompt = script.vocabulary.encoding.decode(script.prompts[-1])
    assert "Talk like a pirate." in prompt
    assert "Reasoning: high" in prompt


def test_versions(page: Page) -> None:
    chat_id = page.new()
    first = page.answered(page.ask(chat_id, "Quick?"))
    question = first["parent_id"]
    again = page.call("POST", f"chats/{chat_id}/answer", {"parent_id": question})["answer"]
    done = page.answered(again)
    edited = page.answered(page.ask(chat_id, "Otherwise?", None))
    turns = page.tree(chat_id)
    assert [t["id"] for t in turns if t["parent_id"] == question] == [first["id"], again["id"]]
    assert len([t for t in turns if t["parent_id"] is None]) == 2
    assert page.call("GET", f"chats/{chat_id}")["chat"]["leaf_id"] == edited["id"]
    shown = page.call("PATCH", f"chats/{chat_id}", {"leaf_id": question})
    assert shown["leaf_id"] == again["id"]
    path = f"chats/{chat_id}/system"
    turns = page.call("PUT", path, {"content": "Be long."})["turns"]
    assert [t["content"] for t in turns] == ["Be long.", "Quick?", "Yes."]
    assert turns[-1]["stats"]["eval_count"] == done["stats"]["eval_count"]
    bare = page.call("PUT", path, {"content": ""})["turns"]
    assert [t["role"] for t in bare] == ["user", "assistant"]


def test_change_and_delete(page: Page) -> None:
    chat_id = page.new()
    changes = {"title": " A\nname ", "effort": "high", "options": {"seed": 7}}
    chat = page.call("PATCH", f"chats/{chat_id}", changes)
    assert (chat["title"], chat["effort"], chat["options"]) == ("A name", "high", {"seed": 7})
    turn = page.ask(chat_id, "Long?")
    wait_until(lambda: page.turn(turn)["content"])
    assert page.call("DELETE", f"chats/{chat_id}") == {"status": "success"}
    wait_until(lambda: 'sequences_running{model="nano"} 0' in page.http.get("/metrics").text)
    for method in ("GET", "PATCH", "DELETE"):
        reply = page.call(method, f"chats/{chat_id}", {}, status=404)
        assert reply["code"] == "ChatNotFoundError"


def test_stop_and_continue(page: Page, script: Script) -> None:
    chat_id = page.new()
    turn = page.ask(chat_id, "Long?")
    wait_until(lambda: page.turn(turn)["content"])
    for method, path, body in (
        ("POST", "ask", {"content": "More", "parent_id": turn["id"]}),
        ("POST", "continue", {"turn_id": turn["id"]}),
        ("POST", "fork", {"turn_id": turn["id"]}),
        ("PUT", "system", {"content": "x"}),
    ):
        reply = page.call(method, f"chats/{chat_id}/{path}", body, status=409)
        assert reply["code"] == "AnsweringError"
    assert page.answered(page.ask(chat_id, "Quick?"))["content"] == "Yes."  # next to it
    for _ in range(2):  # once more does nothing
        assert page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})
    stopped = page.turn(turn)
    assert stopped["state"] == "stopped"
    assert LONG.startswith(stopped["content"])
    assert 0 < len(stopped["content"]) < len(LONG)
    going = page.call("POST", f"chats/{chat_id}/continue", {"turn_id": turn["id"]})["answer"]
    assert (going["id"], going["state"]) == (turn["id"], "streaming")
    wait_until(lambda: script.go_on() or page.turn(turn)["state"] != "streaming")
    grown = page.turn(turn)["content"]
    assert grown.startswith(stopped["content"])
    assert len(grown) > len(stopped["content"])
    page.call("POST", f"chats/{chat_id}/continue", {"turn_id": turn["id"]}, status=400)


def test_the_answer_comes_now(page: Page, script: Script) -> None:
    turn = page.ask(page.new(), "Thinks?")
    wait_until(lambda: page.turn(turn)["reasoning"])
    page.call("POST", f"chats/{turn['chat_id']}/answer-now", {"turn_id": turn["id"]})
    wait_until(lambda: script.go_on() or page.turn(turn)["state"] != "streaming")
    answered = page.turn(turn)
    assert answered["content"] == "Yes."
    assert len(answered["reasoning"]) < len(LONG) / 2


@pytest.mark.parametrize(
    ("model", "question", "says"),
    [
        ("nowhere", "Quick?", "nowhere"),
        ("nano", "many words " * 4000, "context"),
        ("nano", "Breaks?", "the script says that this fails"),
        ("nano", "Dies?", "the model runner stopped"),
    ],
)
def test_an_error_is_kept_in_its_turn(page: Page, model: str, question: str, says: str) -> None:
    chat_id = page.new(model=model)
    failed = page.answered(page.ask(chat_id, question))
    assert failed["state"] == "failed"
    assert says in failed["stats"]["error"]
    page.call("PATCH", f"chats/{chat_id}", {"model": "nano"})
    again = page.call("POST", f"chats/{chat_id}/answer", {"parent_id": failed["parent_id"]})
    assert page.answered(again["answer"])["state"] == ("done" if model == "nowhere" else "failed")


REFUSED: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("GET", "chats?limit=none", None, 400),
    ("GET", "chats/99999999999999999999", None, 404),
    ("GET", "chats/changes?chat=999", None, 404),
    ("GET", "chats/changes?chat=x", None, 400),
    ("GET", "chats/{chat}/export?format=pdf", None, 400),
    ("POST", "chats", {"model": "nano", "options": {"nope": 1}}, 400),
    ("POST", "chats", {"model": "nano", "options": {"top_p": 7}}, 400),
    ("POST", "chats", {"model": "nano", "effort": "huge"}, 400),
    ("PATCH", "chats/{chat}", {"options": {"seed": -1}}, 400),
    ("POST", "chats/{chat}/ask", {"content": " \n"}, 400),
    ("POST", "chats/{chat}/ask", {"content": "x", "parent_id": "{turn}"}, 404),
    ("POST", "chats/{chat}/ask", {"content": "x", "parent_id": 2**70}, 404),
    ("POST", "chats/999/ask", {"content": "x"}, 404),
    ("POST", "chats/{chat}/answer", {}, 400),
    ("POST", "chats/{other}/answer", {"parent_id": "{turn}"}, 400),
    ("POST", "chats/{chat}/stop", {"turn_id": "{turn}"}, 404),
    ("POST", "chats/{other}/answer-now", {"turn_id": "{turn}"}, 409),
    ("PUT", "presets/x", {"options": {"nope": 1}}, 400),
]


def test_refusals(page: Page) -> None:
    chat_id, other = page.new(), page.new()
    turn = page.answered(page.ask(other, "Quick?"))["id"]
    for method, path, body, status in REFUSED:
        of_other = {
            name: turn if value == "{turn}" else value for name, value in (body or {}).items()
        }
        path = path.replace("{chat}", str(chat_id)).replace("{other}", str(other))
        assert page.call(method, path, of_other if body else None, status=status)["error"]
    assert page.tree(chat_id) == []
    content = b" " * (33 * 1024 * 1024)
    with suppress(httpx.WriteError):  # the server may have closed before all of it was sent
        assert page.http.post("/api/gptoss/chats/import", content=content).status_code == 413


def test_fork_export_and_import(page: Page) -> None:
    chat_id = page.new()
    done = page.answered(page.ask(chat_id, "Quick?"))
    copy = page.call("POST", f"chats/{chat_id}/fork", {"turn_id": done["parent_id"]})
    assert [t["content"] for t in page.tree(copy["id"])] == ["Quick?"]
    whole = page.http.get(f"/api/gptoss/chats/{chat_id}/export")
    assert whole.headers["content-type"].startswith("application/json")
    assert json.loads(whole.text)["turns"][1]["stats"]["tokens"]
    text = page.http.get(f"/api/gptoss/chats/{chat_id}/export?format=markdown")
    assert text.headers["content-type"].startswith("text/markdown")
    assert "## You\n\nQuick?" in text.text
    added = page.http.post("/api/gptoss/chats/import", content=whole.content).json()
    assert added["title"] == "Quick?"
    assert [t["content"] for t in page.tree(added["id"])] == ["Quick?", "Yes."]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("conversations.json", json.dumps([CHATGPT, CHATGPT]))
    added = page.http.post("/api/gptoss/chats/import", content=packed.getvalue()).json()
    assert (added["title"], added["n_chats"], len(page.tree(added["id"]))) == ("Sums", 2, 7)
    assert added["notes"][0].startswith("Not imported: 2 citations")
    for wrong in (b"{}", b"no", b"", b"\xff\xfe", whole.content[:-20]):
        assert page.http.post("/api/gptoss/chats/import", content=wrong).status_code == 400


def test_presets(page: Page) -> None:
    preset = {"system": "Arr", "effort": "low", "options": {"temperature": 0.2, "truncate": True}}
    assert page.call("PUT", "presets/Sea%20dog", preset) == {"status": "success"}
    (saved,) = page.call("GET", "presets")["presets"]
    assert saved == {"name": "Sea dog", **preset}
    page.call("PUT", "presets/Sea%20dog", {"name": "Pirate", "system": "Arrr"})
    (saved,) = page.call("GET", "presets")["presets"]
    assert saved == {"name": "Pirate", "system": "Arrr", "effort": None, "options": {}}
    page.call("PUT", "presets/PIRATE", preset, status=400)
    page.call("DELETE", "presets/Pirate")
    assert page.call("GET", "presets")["presets"] == []
