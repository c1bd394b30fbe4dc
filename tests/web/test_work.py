"""A chat in the page works in the folder of the settings, for the owner on this machine alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.access import Caller
from gptoss_local.server.keys import add_phone
from gptoss_local.server.lan import lan_addresses
from tests.conftest import RunningServer, wait_until
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.tui.test_work import RIGHT, RUN, WRONG, heard_by, patch_of, raw, repository
from tests.web.chatting import ask, chat_id, press, prose
from tests.web.conftest import OpenPage, Watch
from tests.web.test_tools import button, question, tools_of

__all__ = ["repository"]  # a fixture
SWITCH = "Work in ~/repository"
CHATS = "/api/gptoss/chats"


@pytest.fixture
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say(
        "Mend the test",
        calls("read_file", {"path": "sums.py"}),
        raw(patch_of("a - b", "5")),
        calls("apply_patch", {"patch": patch_of("a - b", "a + b")}),
        calls("run_command", {"command": RUN}),
        answer("Mended."),
    )
    script.say("Read it", calls("read_file", {"path": "sums.py"}), answer("Read."))
    script.otherwise(answer("As you wish."))
    return script


@pytest.fixture
def server(
    nano_home: Path, script: Script, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningServer]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(repository.parent / "config"))
    with run_scripted_server(nano_home, script, work_folder=str(repository)) as server:
        yield server


def colour(lines: Locator, text: str) -> str:
    line = lines.filter(has_text=text)
    return str(line.evaluate("line => getComputedStyle(line).color"))


def test_a_model_mends_a_program(
    server: RunningServer, open_page: OpenPage, script: Script, repository: Path, watch: Watch
) -> None:
    watch.expected = ("status of 400",)
    page, sums = open_page(server), repository / "sums.py"
    ask(page, "Hello")
    assert not {"apply_patch", "British"} & set(heard_by(script).split())
    tools = tools_of(page)
    expect(tools.get_by_label(SWITCH)).not_to_be_checked()
    tools.get_by_label(SWITCH).check()
    expect(tools).to_contain_text("runs commands; reads AGENTS.md. list_files, search, read_file")
    press(page, "Close")
    expect(page.locator(".tools-on")).to_contain_text(SWITCH)
    ask(page, "Mend the test", waits=False)
    lines = question(page).locator("pre.diff span")
    expect(lines).to_contain_text(["--- a/sums.py", "+++ b/sums.py"])
    red, green = colour(lines, "-    return a - b"), colour(lines, "+    return 5")
    assert len({red, green, colour(lines, " def add")}) == 3
    assert "British" in heard_by(script)
    expect(button(page, "Allow in this chat")).to_be_visible()
    expect(button(page, "Always allow")).to_have_count(0)
    expect(button(page, "No")).to_be_enabled()
    question(page).get_by_label("Why not").press_sequentially("no tricks")
    question(page).get_by_label("Why not").press("Enter")
    expect(lines.filter(has_text="+    return a + b")).to_have_count(1)
    assert sums.read_text() == WRONG
    button(page, "Allow once").click()
    expect(question(page).locator("pre.command")).to_contain_text(RUN)
    assert sums.read_text() == RIGHT
    expect(question(page).get_by_role("button")).to_have_text(["Allow once", "No"])
    expect(page.get_by_role("button", name="Undo this patch")).to_be_disabled()
    button(page, "Allow once").click()
    expect(prose(page)).to_have_text("Mended.")
    ran = page.locator(".ran")
    ran.nth(2).locator("summary").click()
    expect(ran.nth(2).locator(".call")).to_contain_text("*** Update File: sums.py\n@@ def add")
    assert colour(ran.nth(2).locator(".call span"), "-    return a - b") == red
    expect(ran.nth(1).locator(".result")).to_have_text("The user denied this call. no tricks")
    sums.write_text("mine\n")
    press(page, "Undo this patch")
    expect(page.get_by_role("alert")).to_contain_text("has changed since; nothing was undone")
    sums.write_text(RIGHT)
    press(page, "Undo this patch")
    expect(ran.last).to_contain_text("Took back a patch")
    assert sums.read_text() == WRONG
    expect(page.get_by_role("button", name="Undo this patch")).to_have_count(0)
    ask(page, "And now?")
    assert "The user took back your patch of sums.py." in heard_by(script)
    check_a_phone(page, server, script)
    repository.rename(repository.parent / "gone")
    tools = tools_of(page)
    expect(tools).to_contain_text("there is no folder")


def check_a_phone(page: Page, server: RunningServer, script: Script) -> None:
    """Its answers do without the tools, in the same chat, and it does not switch them on."""
    key = {"authorization": f"Bearer {add_phone(server.home / 'keys.toml')}"}
    chat = f"{CHATS}/{chat_id(page)}"

    with httpx.Client(base_url=server.url, headers=key, trust_env=False) as phone:

        def turns() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = phone.get(chat).json()["turns"]
            return found

        leaf = turns()[-1]["id"]
        phone.post(f"{chat}/ask", json={"content": "Read it", "parent_id": leaf})
        wait_until(lambda: turns()[-1]["content"] == "Read.")
        assert turns()[-2]["role"] == "user"  # no call was made
        assert "British" not in heard_by(script)
        for path in (f"{CHATS}/tools", f"{CHATS}/tools?chat={chat_id(page)}"):
            groups = phone.get(path).json()["groups"]
            assert SWITCH not in [group["name"] for group in groups]
        on = {"options": {"tools": SWITCH}}
        assert phone.patch(chat, json=on).status_code == 403
        assert phone.post(CHATS, json=on).status_code == 403
        assert phone.post(f"{chat}/undo").status_code == 403
        exported = phone.get(f"{chat}/export").text
        assert SWITCH in exported
        imported = phone.post(f"{CHATS}/import", content=exported).json()
        assert imported["options"] == {}


@pytest.mark.skipif(not lan_addresses(), reason="needs an address of a local network")
def test_the_owner_has_it_on_this_machine_alone(server: RunningServer) -> None:
    with httpx.Client(headers=server.owner, verify=False, trust_env=False) as owner:
        lan = owner.post(f"{server.url}/api/gptoss/lan", json={}).json()
        for url, is_here in ((server.url, True), (lan["urls"][0], False)):
            groups = owner.get(f"{url}{CHATS}/tools?start=no").json()["groups"]
            assert (SWITCH in [group["name"] for group in groups]) == is_here
            made = owner.post(f"{url}{CHATS}", json={"options": {"tools": SWITCH}})
            assert made.status_code == (200 if is_here else 403)


@pytest.mark.parametrize("kind", ["owner", "page", "phone", "key", "anonymous"])
@pytest.mark.parametrize("is_here", [True, False])
def test_who_may(kind: Any, is_here: bool) -> None:
    assert Caller(kind, is_here=is_here).may_work == (is_here and kind in ("owner", "page"))
