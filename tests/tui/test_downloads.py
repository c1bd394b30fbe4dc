"""A model that is not here is fetched from the list of models, and watched."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gptoss_local.api.gptoss import ModelFit
from gptoss_local.api.models import JobStatus
from gptoss_local.base.errors import DownloadError
from tests.tui.running_chat import Chat, run_chat
from tests.tui.wire import answer_of, installed
from tui.screens.download import DownloadDialog

GB = 10**9


class Store:
    """A server that has nano alone, and fetches others as far as a test lets it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[JobStatus | Exception] = asyncio.Queue()
        self.names = ["nano"]
        self.n_pulls = self.n_left = 0

    async def get(self, path: str, _answer_type: object) -> Any:
        if path == "/api/tags":
            return answer_of(path, tags=[installed(n, GB, "10M") for n in self.names])
        return answer_of(path, fits=[ModelFit("gpt-oss:20b", "vram", 1.0, 9)])

    async def stream(
        self, path: str, body: dict[str, Any], _line_type: object
    ) -> AsyncIterator[JobStatus]:
        assert (path, body["model"]) == ("/api/pull", "gpt-oss:20b")
        self.n_pulls += 1
        try:
            while (frame := await self.frames.get()).status != "success":  # type: ignore[union-attr]
                yield frame  # type: ignore[misc]
        except AttributeError:
            raise DownloadError("no network", hint="Try again.") from None
        finally:
            self.n_left += 1

    def say(self, done_gb: float) -> None:
        status = JobStatus("pulling x", total=14 * GB, completed=int(done_gb * GB))
        self.frames.put_nowait(status)


async def choose(chat: Chat) -> None:
    """Choose the 20b in the list, until only a yes is missing."""
    await chat.enter("/model")
    await chat.shows("fits in VRAM")
    await chat.shows("to download")
    await chat.press("down", "enter")
    await chat.shows("Download gpt-oss:20b (")
    await chat.shows("fits in VRAM")


async def begin(chat: Chat) -> None:
    await choose(chat)
    await chat.press("y")
    await chat.until(lambda: isinstance(chat.app.screen, DownloadDialog))


async def test_it_is_watched_to_its_end(tmp_path: Path) -> None:
    store = Store()
    async with run_chat(store, tmp_path / "c", notifications=True) as chat:
        await begin(chat)
        await chat.shows("asking the hub")
        store.say(1)
        await asyncio.sleep(0.4)
        store.say(1.5)
        await chat.shows("1.5 GB of 14.0 GB")
        await chat.shows("/s · ")
        await chat.shows(" left")
        store.names.append("gpt-oss:20b")
        store.frames.put_nowait(JobStatus("success"))
        await chat.until(lambda: not isinstance(chat.app.screen, DownloadDialog))
        assert "gpt-oss:20b is here" in chat.notices()
        await chat.enter("/model gpt-oss:20b")
        assert chat.app.chat.conversation.model == "gpt-oss:20b"


async def test_it_goes_on_without_the_dialog_and_can_be_seen_again(tmp_path: Path) -> None:
    store = Store()
    async with run_chat(store, tmp_path / "c") as chat:
        await begin(chat)
        store.say(2)
        await chat.press("escape")
        await chat.enter("/model")
        await chat.shows("downloading: 2.0 GB of 14.0 GB")
        store.say(3)
        await chat.shows("downloading: 3.0 GB of 14.0 GB")
        await chat.press("escape")
        await chat.enter("/model gpt-oss:20b")
        await chat.shows("3.0 GB of 14.0 GB")
        assert store.n_pulls == 1
        await chat.press("x")
        await chat.until(lambda: not isinstance(chat.app.screen, DownloadDialog))
        assert store.n_left == 1
        await chat.enter("/model")
        await chat.shows("to download")


async def test_why_it_failed_is_said(tmp_path: Path) -> None:
    store = Store()
    async with run_chat(store, tmp_path / "c", notifications=True) as chat:
        await begin(chat)
        store.frames.put_nowait(DownloadError("no network"))
        await chat.tells("no network")
        await chat.until(lambda: not isinstance(chat.app.screen, DownloadDialog))
        await begin(chat)
        assert store.n_pulls == 2
    await asyncio.sleep(0)  # leaving the chat ends it
    assert store.n_left == 2
