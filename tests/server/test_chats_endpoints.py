"""Each endpoint of the page, with a real server whose model plays a script."""

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
    script.say("Long?", answer(LONG, "Let me count.", tok_s=40))
    script.say("Thinks?", answer("Yes.", LONG, tok_s=60))
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
    hits = page.call("GET", "chats?q=marmalade")["hits"]
    assert [hit["chat_id"] for hit in hits] == [first]
    assert f"{MATCH_START}marmalade{MATCH_END}" in hits[0]["snippet"]
    assert page.call("GET", "chats?q=")["hits"] == []
    page.call("PATCH", f"chats/{first}", {"is_pinned": False})
    page.call("GET", "chats?limit=none", status=400)


def test_a_chat_begins_with_what_was_chosen(page: Page, script: Script) -> None:
    chat = page.call(
        "POST",
        "chats",
        {
            "model": "nano",
            "effort": "high",
            "preset": "Pirate",
            "system": "Talk like a pirate.",
            "options": {"temperature": 0.5, "num_ctx": 2048},
        },
    )
    assert (chat["effort"], chat["preset"], chat["n_turns"]) == ("high", "Pirate", 1)
    assert chat["options"] == {"temperature": 0.5, "num_ctx": 2048}
    (system,) = page.tree(chat["id"])
    assert (system["role"], system["content"]) == ("system", "Talk like a pirate.")
    page.answered(page.ask(chat["id"], "Quick?", system["id"]))
    assert {t["role"] for t in page.tree(chat["id"])} == {"system", "user", "assistant"}
    vocabulary = script.vocabulary
    prompt = vocabulary.encoding.decode(script.prompts[-1])
    assert "Talk like a pirate." in prompt
    assert "Reasoning: high" in prompt
    for wrong in ({"options": {"nope": 1}}, {"options": {"top_p": 7}}, {"effort": "huge"}):
        page.call("POST", "chats", {"model": "nano", **wrong}, status=400)


def test_an_answer_has_what_one_of_the_terminal_has(page: Page) -> None:
    chat_id = page.new()
    turn = page.ask(chat_id, "Quick?")
    assert (turn["state"], turn["model"], turn["effort"]) == ("streaming", "nano", "low")
    done = page.answered(turn)
    assert (done["content"], done["reasoning"], done["state"]) == ("Yes.", "Easy.", "done")
    stats = done["stats"]
    for name in ("eval_count", "eval_duration", "prompt_eval_count", "ttft_s", "latencies_ms"):
        assert stats[name], name
    assert stats["done_reason"] == "stop"
    assert stats["n_reasoning_frames"] > 0
    assert "tokens" not in stats  # they are in the file


def test_versions(page: Page) -> None:
    chat_id = page.new()
    first = page.answered(page.ask(chat_id, "Quick?"))
    question = first["parent_id"]
    again = page.call("POST", f"chats/{chat_id}/answer", {"parent_id": question})["answer"]
    page.answered(again)
    edited = page.answered(page.ask(chat_id, "Otherwise?", None))
    turns = page.tree(chat_id)
    assert [t["id"] for t in turns if t["parent_id"] == question] == [first["id"], again["id"]]
    assert len([t for t in turns if t["parent_id"] is None]) == 2
    assert page.call("GET", f"chats/{chat_id}")["chat"]["leaf_id"] == edited["id"]
    shown = page.call("PATCH", f"chats/{chat_id}", {"leaf_id": question})
    assert shown["leaf_id"] == again["id"]
    page.call("POST", f"chats/{chat_id}/answer", {"parent_id": first["id"]}, status=400)


def test_change_and_delete(page: Page) -> None:
    chat_id = page.new()
    changes = {"title": " A\nname ", "model": "other", "effort": "high", "options": {"seed": 7}}
    chat = page.call("PATCH", f"chats/{chat_id}", changes)
    assert (chat["title"], chat["model"], chat["effort"]) == ("A name", "other", "high")
    assert chat["options"] == {"seed": 7}
    assert page.call("PATCH", f"chats/{chat_id}", {"effort": "low"})["model"] == "other"
    page.call("PATCH", f"chats/{chat_id}", {"options": {"seed": -1}}, status=400)
    assert page.call("DELETE", f"chats/{chat_id}") == {"status": "success"}
    for method in ("GET", "PATCH", "DELETE"):
        reply = page.call(method, f"chats/{chat_id}", {}, status=404)
        assert reply["code"] == "ChatNotFoundError"
    page.call("GET", "chats/99999999999999999999", status=404)


def test_deleting_a_chat_stops_its_answer(page: Page, served: RunningServer) -> None:
    def is_running() -> bool:
        metrics = httpx.get(f"{served.url}/metrics", trust_env=False).text
        return 'gptoss_engine_sequences_running{model="nano"} 1' in metrics

    chat_id = page.new()
    page.ask(chat_id, "Long?")  # for some ten seconds
    wait_until(is_running)
    page.call("DELETE", f"chats/{chat_id}")
    page.call("GET", f"chats/{chat_id}", status=404)
    wait_until(lambda: not is_running(), timeout_s=6)


def test_stop_and_continue(page: Page, script: Script) -> None:
    chat_id = page.new()
    turn = page.ask(chat_id, "Long?")
    wait_until(lambda: page.turn(turn)["content"], timeout_s=30)
    for path, body in (
        ("ask", {"content": "More", "parent_id": turn["id"]}),
        ("continue", {"turn_id": turn["id"]}),
        ("fork", {"turn_id": turn["id"]}),
    ):
        reply = page.call("POST", f"chats/{chat_id}/{path}", body, status=409)
        assert reply["code"] == "AnsweringError"
    page.call("PUT", f"chats/{chat_id}/system", {"content": "x"}, status=409)
    assert page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})
    stopped = page.turn(turn)
    assert stopped["state"] == "stopped"
    assert LONG.startswith(stopped["content"])
    assert 0 < len(stopped["content"]) < len(LONG)
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})  # once more does nothing
    going = page.call("POST", f"chats/{chat_id}/continue", {"turn_id": turn["id"]})["answer"]
    assert (going["id"], going["state"]) == (turn["id"], "streaming")
    page.answered(turn)
    grown = page.turn(turn)
    assert grown["content"].startswith(stopped["content"])
    assert len(grown["content"]) > len(stopped["content"])
    encoding = script.vocabulary.encoding
    assert stopped["content"].rstrip() in encoding.decode(script.prompts[-1])
    assert len(page.tree(chat_id)) == 2
    page.call("POST", f"chats/{chat_id}/continue", {"turn_id": turn["id"]}, status=400)


def test_another_question_may_be_asked_while_an_answer_runs(page: Page) -> None:
    chat_id = page.new()
    long = page.ask(chat_id, "Long?")
    quick = page.answered(page.ask(chat_id, "Quick?"))
    assert quick["content"] == "Yes."
    assert page.turn(long)["state"] == "streaming"
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": long["id"]})
    assert len(page.tree(chat_id)) == 4


@pytest.mark.parametrize(
    ("model", "options", "question", "says"),
    [
        ("nowhere", {}, "Quick?", "nowhere"),
        ("nano", {}, "many words " * 4000, "context"),
        ("nano", {}, "Breaks?", "."),
        ("nano", {}, "Dies?", "the model runner stopped"),
    ],
)
def test_what_fails_is_in_the_turn(
    page: Page, model: str, options: dict[str, Any], question: str, says: str
) -> None:
    chat_id = page.new(model=model, options=options)
    failed = page.answered(page.ask(chat_id, question))
    assert failed["state"] == "failed"
    assert says in failed["stats"]["error"]
    page.call("PATCH", f"chats/{chat_id}", {"model": "nano", "options": {}})
    again = page.call("POST", f"chats/{chat_id}/answer", {"parent_id": failed["parent_id"]})
    assert page.answered(again["answer"])["state"] == ("done" if model == "nowhere" else "failed")


def test_wrong_questions(page: Page) -> None:
    chat_id, other = page.new(), page.new()
    turn = page.answered(page.ask(other, "Quick?"))
    ask = f"chats/{chat_id}/ask"
    page.call("POST", ask, {"content": " \n"}, status=400)
    page.call("POST", ask, {"content": "x", "parent_id": turn["id"]}, status=404)
    page.call("POST", ask, {"content": "x", "parent_id": -1}, status=404)
    page.call("POST", ask, {"content": "x", "parent_id": 2**70}, status=404)
    page.call("POST", f"chats/{chat_id}/answer", {}, status=400)
    page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]}, status=404)
    page.call("POST", f"chats/{chat_id + 999}/ask", {"content": "x"}, status=404)
    assert page.tree(chat_id) == []


def test_pasted_parts_are_kept(page: Page) -> None:
    chat_id = page.new()
    body = {"content": "See this: a\nb", "parent_id": None, "folds": [[10, 13, "pasted: 2 lines"]]}
    begun = page.call("POST", f"chats/{chat_id}/ask", body)
    assert begun["question"]["stats"] == {"folds": [[10, 13, "pasted: 2 lines"]]}
    page.answered(begun["answer"])


def test_other_instructions_begin_another_branch(page: Page) -> None:
    chat_id = page.new(system="Be brief.")
    (system,) = page.tree(chat_id)
    done = page.answered(page.ask(chat_id, "Quick?", system["id"]))
    path = f"chats/{chat_id}/system"
    turns = page.call("PUT", path, {"content": "Be long."})["turns"]
    assert [t["content"] for t in turns] == ["Be long.", "Quick?", "Yes."]
    assert turns[-1]["stats"]["eval_count"] == done["stats"]["eval_count"]
    assert len(page.tree(chat_id)) == 6  # nothing is overwritten
    assert page.call("PUT", path, {"content": "Be long."})["turns"] == turns
    bare = page.call("PUT", path, {"content": ""})["turns"]
    assert [t["role"] for t in bare] == ["user", "assistant"]
    empty = page.new()
    assert page.call("PUT", f"chats/{empty}/system", {"content": "x"})["turns"][0]["role"] == (
        "system"
    )
    assert page.call("PUT", f"chats/{empty}/system", {"content": ""})["turns"] == []


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
    page.call("GET", f"chats/{chat_id}/export?format=pdf", status=400)
    added = page.http.post("/api/gptoss/chats/import", content=whole.content).json()
    assert added["title"] == "Quick?"
    assert [t["content"] for t in page.tree(added["id"])] == ["Quick?", "Yes."]
    for wrong in (b"{}", b"no", b"", b"\xff\xfe", whole.content[:-20]):
        assert page.http.post("/api/gptoss/chats/import", content=wrong).status_code == 400


def test_large_bodies_are_refused(page: Page) -> None:
    for path in ("chats/import", f"chats/{page.new()}/ask"):
        content = b" " * (33 * 1024 * 1024)
        with suppress(httpx.WriteError):  # the server may have closed before all of it was sent
            assert page.http.post(f"/api/gptoss/{path}", content=content).status_code == 413


def test_presets(page: Page) -> None:
    preset = {"system": "Arr", "effort": "low", "options": {"temperature": 0.2, "truncate": True}}
    assert page.call("PUT", "presets/Sea%20dog", preset) == {"status": "success"}
    (saved,) = page.call("GET", "presets")["presets"]
    assert saved == {"name": "Sea dog", **preset}
    page.call("PUT", "presets/Sea%20dog", {"name": "Pirate", "system": "Arrr"})
    (saved,) = page.call("GET", "presets")["presets"]
    assert saved == {"name": "Pirate", "system": "Arrr", "effort": None, "options": {}}
    page.call("PUT", "presets/PIRATE", preset, status=400)
    page.call("PUT", "presets/x", {"options": {"nope": 1}}, status=400)
    page.call("DELETE", "presets/Pirate")
    assert page.call("GET", "presets")["presets"] == []


def test_the_answer_comes_now(page: Page) -> None:
    turn = page.ask(page.new(), "Thinks?")
    wait_until(lambda: page.turn(turn)["reasoning"], timeout_s=30)
    page.call("POST", f"chats/{turn['chat_id']}/answer-now", {"turn_id": turn["id"]})
    page.answered(turn)
    answered = page.turn(turn)
    assert answered["content"] == "Yes."
    assert len(answered["reasoning"]) < len(LONG) / 2
    page.call("POST", f"chats/{turn['chat_id']}/answer-now", {"turn_id": turn["id"]}, status=409)
