"""The endpoints of the page's chats, on a server whose model plays a script."""

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import MATCH_END, MATCH_START
from tests.conftest import RunningServer, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.page_client import Page

LONG = " ".join(f"word{n}" for n in range(400))


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
    shutil.copytree(nano_home / "cache", home / "cache")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))  # where presets are
        with run_scripted_server(home, script, context_length="4096") as server:
            yield server


@pytest.fixture
def page(served: RunningServer) -> Iterator[Page]:
    with Page(served) as page:
        yield page


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
    assert stats["n_reasoning_frames"] > 0
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
    assert page.call("PUT", path, {"content": "Be long."})["turns"] == turns
    bare = page.call("PUT", path, {"content": ""})["turns"]
    assert [t["role"] for t in bare] == ["user", "assistant"]


def test_change_and_delete(page: Page, served: RunningServer) -> None:
    def is_running() -> bool:
        metrics = httpx.get(f"{served.url}/metrics", trust_env=False).text
        return 'gptoss_engine_sequences_running{model="nano"} 1' in metrics

    chat_id = page.new()
    changes = {"title": " A\nname ", "effort": "high", "options": {"seed": 7}}
    chat = page.call("PATCH", f"chats/{chat_id}", changes)
    assert (chat["title"], chat["effort"], chat["options"]) == ("A name", "high", {"seed": 7})
    assert page.call("PATCH", f"chats/{chat_id}", {"model": "other"})["effort"] == "high"
    page.call("PATCH", f"chats/{chat_id}", {"model": "nano"})
    page.ask(chat_id, "Long?")
    wait_until(is_running)
    assert page.call("DELETE", f"chats/{chat_id}") == {"status": "success"}
    wait_until(lambda: not is_running())
    for method in ("GET", "PATCH", "DELETE"):
        reply = page.call(method, f"chats/{chat_id}", {}, status=404)
        assert reply["code"] == "ChatNotFoundError"


def test_stop_and_continue(page: Page, script: Script) -> None:
    chat_id = page.new()
    turn = page.ask(chat_id, "Long?")
    wait_until(lambda: page.turn(turn)["content"])
    for path, body in (
        ("ask", {"content": "More", "parent_id": turn["id"]}),
        ("continue", {"turn_id": turn["id"]}),
        ("fork", {"turn_id": turn["id"]}),
    ):
        reply = page.call("POST", f"chats/{chat_id}/{path}", body, status=409)
        assert reply["code"] == "AnsweringError"
    page.call("PUT", f"chats/{chat_id}/system", {"content": "x"}, status=409)
    assert page.answered(page.ask(chat_id, "Quick?"))["content"] == "Yes."  # beside it
    assert page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})
    stopped = page.turn(turn)
    assert stopped["state"] == "stopped"
    assert LONG.startswith(stopped["content"])
    assert 0 < len(stopped["content"]) < len(LONG)
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})  # once more does nothing
    going = page.call("POST", f"chats/{chat_id}/continue", {"turn_id": turn["id"]})["answer"]
    assert (going["id"], going["state"]) == (turn["id"], "streaming")
    wait_until(lambda: script.go_on() or page.turn(turn)["state"] != "streaming")
    grown = page.turn(turn)
    assert grown["content"].startswith(stopped["content"])
    assert len(grown["content"]) > len(stopped["content"])
    encoding = script.vocabulary.encoding
    assert stopped["content"].rstrip() in encoding.decode(script.prompts[-1])
    page.call("POST", f"chats/{chat_id}/continue", {"turn_id": turn["id"]}, status=400)


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


def test_the_answer_comes_now(page: Page, script: Script) -> None:
    turn = page.ask(page.new(), "Thinks?")
    wait_until(lambda: page.turn(turn)["reasoning"])
    page.call("POST", f"chats/{turn['chat_id']}/answer-now", {"turn_id": turn["id"]})
    wait_until(lambda: script.go_on() or page.turn(turn)["state"] != "streaming")
    answered = page.turn(turn)
    assert answered["content"] == "Yes."
    assert len(answered["reasoning"]) < len(LONG) / 2
