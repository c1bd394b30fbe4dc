"""What each widget and screen looks like, compared with the texts in `__snapshots__`.

After a change that is meant, `pytest tests/tui/test_snapshots.py --snapshot-update` writes them
anew; look at `git diff` then.
"""

from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat
from tests.tui.snapshots.picture import picture
from tests.tui.snapshots.screen_cases import CHATS, DIALOGS, SMALL, StillServer, talk
from tests.tui.snapshots.values import toolbox
from tests.tui.snapshots.widget_cases import THEME, WIDGETS, Stage, act_on
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.server import ChatServer


class _TextFiles(SingleFileSnapshotExtension):
    """One text file for each case."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT

    def serialize(self, data: Any, **_options: Any) -> str:
        return str(data)


@pytest.fixture
def screen_file(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(_TextFiles)


async def settled(pilot: Pilot[None]) -> str:
    """The screen once nothing changes any more, without the cursor."""
    for line in (*pilot.app.screen.query(TextArea), *pilot.app.screen.query(Input)):
        line.cursor_blink = False
    n_same, now = 0, picture(pilot.app)
    while n_same < 3:  # turns above are laid out later
        await pilot.pause()
        await pilot.pause(0.04)
        before, now = now, picture(pilot.app)
        n_same = n_same + 1 if before == now else 0
    return now


async def test_widget(screen_file: SnapshotAssertion) -> None:
    """Each in one window, one after the other."""
    different = []
    async with Stage().run_test(size=SMALL) as pilot:
        for name, (make, act) in WIDGETS.items():
            await pilot.app.screen.remove_children()
            await pilot.app.screen.mount(widget := make())
            await pilot.pause()
            pilot.app.screen.set_focus(None)
            await act_on(widget, act)
            if await settled(pilot) != screen_file(name=name):  # --snapshot-update accepts it
                different.append(name)
    assert different == []


@pytest.mark.parametrize("name", DIALOGS)
async def test_dialog(name: str, screen_file: SnapshotAssertion, history: History) -> None:
    make, keys, size = DIALOGS[name]
    async with Stage().run_test(size=size) as pilot:
        await pilot.app.push_screen(make(history))
        await pilot.press(*keys)
        assert await settled(pilot) == screen_file  # --snapshot-update accepts it


@pytest.mark.parametrize("name", CHATS)
async def test_chat(name: str, screen_file: SnapshotAssertion, history: History) -> None:
    act, size, has_turns = CHATS[name]
    conversation = Conversation(history, "nano", "medium")
    if has_turns:
        talk(conversation)
    app = ChatApp(ChatServer(StillServer()), history, conversation, toolbox, theme=THEME)
    app.NOTIFICATION_TIMEOUT = 60
    async with app.run_test(size=size, notifications=True) as pilot:
        chat = Chat(app, pilot)
        await chat.until(lambda: app.chat.loaded)
        await act(chat)
        assert await settled(pilot) == screen_file  # --snapshot-update accepts it


def test_no_snapshot_is_left_over() -> None:
    names = {f"test_widget[{name}].txt" for name in WIDGETS}
    names |= {f"test_dialog[{name}].txt" for name in DIALOGS}
    names |= {f"test_chat[{name}].txt" for name in CHATS}
    folder = Path(__file__).parent / "__snapshots__" / Path(__file__).stem
    assert {path.name for path in folder.iterdir()} <= names
