"""The page's field for the passphrase of the chats."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.scripted_engine import Script, run_scripted_server
from tests.web.answers import say_all
from tests.web.chatting import ask, press, prose
from tests.web.conftest import OpenPage, Watch
from tests.web.test_looks import check_axe


@pytest.fixture
def locked(tmp_path: Path, nano_home: Path, vocabulary: Vocabulary) -> Iterator[RunningServer]:
    """A server with one chat, which has a passphrase."""
    home = tmp_path / "home"
    shutil.copytree(nano_home / "cache", home / "cache")
    history = History(home / "chats.sqlite3")
    history.add(history.new_chat("nano", "low", "Kept secret"), None, "user", "A secret")
    history.lock.set("correct horse")
    history.close()
    script = Script(vocabulary)
    say_all(script)
    with run_scripted_server(home, script) as server:
        yield server


def test_locked_chats_are_unlocked(
    locked: RunningServer, open_page: OpenPage, watch: Watch
) -> None:
    watch.expected = ("423",)
    page = open_page(locked, "/#/temporary", bypass_csp=True)  # for axe itself
    field = page.get_by_label("Passphrase")
    expect(field).to_be_focused()
    check_axe(page)
    page.get_by_role("button", name="Not now").click()
    ask(page, "What is the capital of France?")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    press(page, "New chat")
    field.fill("wrong horse")
    page.get_by_role("button", name="Unlock").click()
    expect(page.get_by_role("alert")).to_have_text("The passphrase is wrong.")
    check_axe(page)
    field.fill("correct horse")
    field.press("Enter")
    expect(field).to_have_count(0)
    page.get_by_role("link", name="Kept secret").click()
    expect(page.get_by_text("A secret", exact=True)).to_be_visible()
    two = open_page(locked, "/")
    expect(two.get_by_role("link", name="Kept secret")).to_be_visible()
