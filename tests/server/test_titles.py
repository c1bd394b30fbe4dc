"""Titles of saved chats: by the model after the first answer, without cost for the chat."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.chats.answers import QUESTION, clean
from tests.conftest import RunningServer, give_nano, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.page_client import Page

FRANCE = "What is the capital of France?"
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
    give_nano(nano_home, home / "cache")
    with run_scripted_server(home, script, context_length="4096") as server:
        yield with_copy(server)


@pytest.fixture
def page(served: RunningServer) -> Iterator[Page]:
    with Page(served) as page:
        yield page


def title(page: Page, chat_id: int) -> str:
    return str(page.call("GET", f"chats/{chat_id}")["chat"]["title"])


def asked_for_a_title(page: Page, script: Script) -> tuple[int, int]:
    """Ask, until the model writes the title and holds; return the chat and its last turn."""
    chat_id, n_before = page.new(model="mine"), len(script.prompts)
    turn = page.answered(page.ask(chat_id, FRANCE))
    wait_until(lambda: len(script.prompts) == n_before + 2)
    wait_until(lambda: any(r.is_held for part in script.parts for r in part.replies))
    return chat_id, turn["id"]


def titled(page: Page, script: Script) -> tuple[int, int]:
    """Have the model title a chat; the title of an earlier chat would have come before."""
    chat_id, turn_id = asked_for_a_title(page, script)
    script.go_on()
    wait_until(lambda: title(page, chat_id) == TITLE)
    return chat_id, turn_id


def test_the_model_titles_a_chat_once(page: Page, script: Script) -> None:
    with page.listening() as heard:
        chat_id, turn_id = titled(page, script)
        asked, told = script.prompts[-2:]
        beginning = told[: len(asked) - 3]  # without the tags that open the answer
        assert asked[: len(beginning)] == beginning
        heard.until(lambda h: any(c["title"] == TITLE for e in h.of("chats") for c in e["chats"]))
    n_before = len(script.prompts)
    page.answered(page.ask(chat_id, "And Italy?", turn_id))
    titled(page, script)
    assert len(script.prompts) == n_before + 3


def test_a_chat_that_is_not_titled(page: Page, script: Script) -> None:
    """The embedded model titles nothing, and a person's title stays."""
    n_before = len(script.prompts)
    page.answered(page.ask(page.new(), FRANCE))
    named = page.new(model="mine")
    page.call("PATCH", f"chats/{named}", {"title": "Mine"})
    page.answered(page.ask(named, FRANCE))
    late, _ = asked_for_a_title(page, script)
    page.call("PATCH", f"chats/{late}", {"title": "Mine, too"})
    script.go_on()
    titled(page, script)
    assert len(script.prompts) <= n_before + 2 + 2 + 2
    assert (title(page, named), title(page, late)) == ("Mine", "Mine, too")


def test_a_stopped_answer_and_one_that_ended_beside_another(page: Page, script: Script) -> None:
    slow = page.ask(page.new(model="mine"), "Slow?")
    wait_until(lambda: any(r.is_held for part in script.parts for r in part.replies))
    quick = page.answered(page.ask(page.new(model="mine"), FRANCE))
    page.call("POST", f"chats/{slow['chat_id']}/stop", {"turn_id": slow["id"]})
    for turn in (quick, slow):

        def is_titled(chat_id: int = turn["chat_id"]) -> bool:
            script.go_on()
            return title(page, chat_id) == TITLE

        wait_until(is_titled)


def test_the_next_question_waits_for_no_title(page: Page, script: Script) -> None:
    chat_id, turn_id = asked_for_a_title(page, script)
    page.answered(page.ask(chat_id, "And Italy?", turn_id))
    script.go_on()
    wait_until(lambda: title(page, chat_id) == TITLE)


def test_titles_can_be_turned_off(tmp_path: Path, nano_home: Path, script: Script) -> None:
    give_nano(nano_home, tmp_path / "cache")
    with (
        run_scripted_server(tmp_path, script, chat_titles="false") as server,
        Page(with_copy(server)) as page,
    ):
        turn = page.answered(page.ask(page.new(model="mine"), FRANCE))
        page.answered(page.ask(turn["chat_id"], "And Italy?", turn["id"]))
        assert (title(page, turn["chat_id"]), len(script.prompts)) == (FRANCE, 2)


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
