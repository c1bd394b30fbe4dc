"""The looks of each screen, compared with the texts in `__snapshots__`.

After a change that is meant, `pytest tests/tui/test_snapshots.py --snapshot-update` writes them
again; look at `git diff` then.
"""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from gptoss_local.api.gptoss import GpuMemory
from gptoss_local.api.models import LoadStatus
from gptoss_local.talk.history import History
from tests.tui.pictures import (
    CHATS,
    DIALOGS,
    GIB,
    MADE,
    STATS,
    THEME,
    Stage,
    picture,
    saying,
    still_server,
    streaming,
    talk,
    toolbox,
)
from tests.tui.running_chat import Chat
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.server import ChatServer
from tui.widgets.status_line import Status, status_parts


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


@pytest.mark.parametrize("name", DIALOGS)
async def test_dialog(name: str, screen_file: SnapshotAssertion, history: History) -> None:
    make, keys, size = DIALOGS[name]
    async with Stage().run_test(size=size) as pilot:
        await pilot.app.push_screen(make(history))
        await pilot.press(*keys)
        assert await settled(pilot) == screen_file  # --snapshot-update accepts it


@pytest.mark.parametrize("name", CHATS)
async def test_chat(name: str, screen_file: SnapshotAssertion, history: History) -> None:
    act, size = CHATS[name]
    conversation = Conversation(history, "nano", "medium")
    MADE.get(name, talk)(conversation)
    app = ChatApp(ChatServer(still_server()), history, conversation, toolbox, theme=THEME)
    app.NOTIFICATION_TIMEOUT = 60
    async with app.run_test(size=size, notifications=True) as pilot:
        chat = Chat(app, pilot)
        await chat.until(lambda: app.chat.loaded)
        await act(chat)
        assert await settled(pilot) == screen_file  # --snapshot-update accepts it


_GPUS = [GpuMemory("g", 16 * GIB, 5 * GIB), GpuMemory("h", 12 * GIB, 10 * GIB)]
_LOAD = LoadStatus("m", "loading", completed=8_100_000_000, total=12_800_000_000)
_READING = {"processed": 12_000, "total": 60_000, "cache": 1000}
_SAYS = streaming(*saying("so it is", "thinking"), *saying("Pa ris"))
_SAID = streaming(*saying("Pa ris"), {"done": True, **STATS})


@pytest.mark.quick
@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"n_used": 1250, "n_ctx": 32_768}, "ctx 1,250/32,768 (4 %)"),
        ({"gpus": _GPUS, "gpu_share": 0.62}, "VRAM 13.0/28.0 GiB │ 62 % on the GPU"),
        ({"answer": streaming()}, "loading the model 0.5 s"),
        ({"answer": streaming(), "load": _LOAD}, "loading 8.1/12.8 GB 0.5 s"),
        ({"answer": streaming(), "load": replace(_LOAD, status="measuring")},
         "measuring the model, this once 0.5 s"),
        ({"answer": streaming(), "n_ctx": 8192}, "reading the prompt 0.5 s │ ctx 8,192"),
        ({"answer": streaming({"prompt_progress": _READING}), "n_ctx": 65_536},
         "reading 12,000/60,000 (20 %) 1.0 s │ ctx ~60,000/65,536 (92 %)"),
        ({"answer": streaming({"prompt_progress": _READING | {"left_out": 4}})},
         "reading 12,000/60,000 (20 %) 1.0 s │ without the oldest 4 │ ctx ~60,000"),
        ({"answer": _SAYS, "n_used": 100, "n_ctx": 8192},
         "answering │ ~2 tok/s │ first 0.50 s │ ctx ~105/8,192 (1 %)"),
        ({"answer": _SAID, "n_used": 1250, "n_ctx": 8192},
         "100 tok/s │ first 0.50 s │ ctx 1,250/8,192 (15 %)"),
        ({"answer": _SAID, "note": "may it run f?"}, "may it run f?"),
    ],
)  # fmt: skip
def test_status_line(facts: dict[str, Any], line: str) -> None:
    name = "registry.example.com/some-user/gpt-oss-finetuned:120b-q8"
    shown = f"registry.examp…tuned:120b-q8 │ low │ {line}"
    assert " │ ".join(status_parts(Status(name, "low", **facts))) == shown


def test_no_snapshot_is_left_over() -> None:
    names = {f"test_dialog[{name}].txt" for name in DIALOGS}
    names |= {f"test_chat[{name}].txt" for name in CHATS}
    folder = Path(__file__).parent / "__snapshots__" / Path(__file__).stem
    assert {path.name for path in folder.iterdir()} <= names
