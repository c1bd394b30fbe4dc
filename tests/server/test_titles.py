"""Titles of saved chats: by the model after the first answer, without cost for the chat."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.chats.answers import QUESTION, clean
from tests.conftest import RunningServer, run_server, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.page_client import Page

FRANCE = "What is the capital of France?"
TITLE_S = 0.5  # more than a title takes that nothing holds up
TITLE = "Paris, Capital of France"


def with_copy(server: RunningServer) -> RunningServer:
    """Give the server a model besides the embedded one, which titles nothing."""
    names = {"source": "nano", "destination": "mine"}
    url = f"{server.url}/api/copy"
    httpx.post(url, json=names, timeout=60, trust_env=False).raise_for_status()
    return server


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say(QUESTION, answer(f'Title: **"{TITLE}"**.', holds_at=6))
    script.say("Slow?", answer("word " * 500, holds_at=20))
    script.otherwise(answer("As you say."))
    return script


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, nano_home: Path, script: Script
) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("titles")
    shutil.copytree(nano_home / "cache", home / "cache")
    with run_scripted_server(home, script, context_length="4096") as server:
        yield with_copy(server)


@pytest.fixture
def page(served: RunningServer) -> Iterator[Page]:
    with Page(served) as page:
        yield page


def title(page: Page, chat_id: int) -> str:
    return str(page.call("GET", f"chats/{chat_id}")["chat"]["title"])


def n_prompts(script: Script) -> int:
    return len(script.prompts)


def asked_for_a_title(page: Page, script: Script) -> tuple[int, int]:
    """Ask, until the model writes the title and holds; return the chat and its last turn."""
    chat_id, n_before = page.new(model="mine"), n_prompts(script)
    turn = page.answered(page.ask(chat_id, FRANCE))
    wait_until(lambda: n_prompts(script) == n_before + 2)
    wait_until(lambda: any(r.is_held for part in script.parts for r in part.replies))
    return chat_id, turn["id"]


def test_the_model_titles_a_chat_once(page: Page, script: Script) -> None:
    with page.listening() as heard:
        chat_id, turn_id = asked_for_a_title(page, script)
        asked, told = script.prompts[-2:]
        beginning = told[: len(asked) - 3]  # without the tags that open the answer
        assert asked[: len(beginning)] == beginning
        script.go_on()
        wait_until(lambda: title(page, chat_id) == TITLE)
        heard.until(lambda h: any(c["title"] == TITLE for e in h.of("chats") for c in e["chats"]))
    n_before = n_prompts(script)
    page.answered(page.ask(chat_id, "And Italy?", turn_id))
    time.sleep(TITLE_S)
    assert n_prompts(script) == n_before + 1


def test_a_title_that_a_person_gives_stays(page: Page, script: Script) -> None:
    chat_id, _ = asked_for_a_title(page, script)
    page.call("PATCH", f"chats/{chat_id}", {"title": "Mine"})
    script.go_on()
    time.sleep(TITLE_S)
    assert title(page, chat_id) == "Mine"
    chat_id, n_before = page.new(model="mine"), n_prompts(script)
    page.call("PATCH", f"chats/{chat_id}", {"title": "Mine"})
    page.answered(page.ask(chat_id, FRANCE))
    time.sleep(TITLE_S)
    assert (title(page, chat_id), n_prompts(script)) == ("Mine", n_before + 1)


def test_the_next_question_waits_for_no_title(page: Page, script: Script) -> None:
    n_before = n_prompts(script)
    chat_id, turn_id = asked_for_a_title(page, script)
    page.answered(page.ask(chat_id, "And Italy?", turn_id))
    script.go_on()
    time.sleep(TITLE_S)
    assert (title(page, chat_id), n_prompts(script)) == (FRANCE, n_before + 3)


@pytest.mark.parametrize(
    ("content", "fold", "found"),
    [
        ("RAW TEXT\n\nWhat is in it?", [0, 8, "notes.txt"], "What is in it?"),
        ("Read RAW TEXT and tell", [5, 13, "notes.txt"], "Read and tell"),
        ("RAW TEXT", [0, 8, "notes.txt"], "notes.txt"),
    ],
)
def test_a_file_is_no_title(page: Page, content: str, fold: list[object], found: str) -> None:
    chat_id = page.new()
    begun = page.call("POST", f"chats/{chat_id}/ask", {"content": content, "folds": [fold]})
    assert begun["question"]["stats"] == {"folds": [fold]}
    assert title(page, chat_id) == found


@pytest.mark.parametrize("how", ["nano", "stopped"])
def test_a_chat_that_is_not_titled(page: Page, script: Script, how: str) -> None:
    chat_id, n_before = page.new(model="nano" if how == "nano" else "mine"), n_prompts(script)
    turn = page.ask(chat_id, "Slow?" if how == "stopped" else FRANCE)
    if how == "stopped":
        page.call("POST", f"chats/{chat_id}/stop", {"turn_id": turn["id"]})
        script.go_on()
    page.answered(turn)
    time.sleep(TITLE_S)
    assert n_prompts(script) <= n_before + 1


def test_titles_can_be_turned_off(tmp_path: Path, nano_home: Path, script: Script) -> None:
    shutil.copytree(nano_home / "cache", tmp_path / "cache")
    with (
        run_scripted_server(tmp_path, script, chat_titles="false") as server,
        Page(with_copy(server)) as page,
    ):
        chat_id = page.new(model="mine")
        page.answered(page.ask(chat_id, FRANCE))
        time.sleep(TITLE_S)
        assert title(page, chat_id) == FRANCE


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" Heron's rule", "Heron's rule"),
        ('Title: "Wurzeln nach Heron".\n', "Wurzeln nach Heron"),
        ("** 海伦公式 **", "海伦公式"),
        ("one two three four five six seven eight nine", ""),
        ("x" * 61, ""),
        ("...", ""),
        ("", ""),
    ],
)
def test_a_title_is_cleaned(text: str, found: str) -> None:
    assert clean(text) == found


def test_a_title_leaves_the_prefix_of_its_chat_in_the_cache(empty_home: Path) -> None:
    """With a real engine: the second question reads itself alone."""
    words = " ".join(f"word{n}" for n in range(300))
    with run_server(empty_home, context_length="8192") as server, Page(with_copy(server)) as page:
        chat_id = page.new(model="mine", options={"seed": 1, "temperature": 0})
        turn = page.answered(page.ask(chat_id, f"{words} {FRANCE}"))
        wait_until(lambda: n_answers(server) == 2)
        stats = page.answered(page.ask(chat_id, "And Italy?", turn["id"]))["stats"]
        assert stats["prompt_eval_count"] > 600
        assert stats["prompt_eval_count"] - stats["prompt_cached_count"] < 30


def n_answers(server: RunningServer) -> int:
    """Return how many answers have ended, titles among them."""
    text = httpx.get(f"{server.url}/metrics", headers=server.owner, trust_env=False).text
    found = re.search(r'^gptoss_generated_tokens_count\{model="mine"\} (\S+)$', text, re.M)
    return int(float(found[1])) if found else 0
