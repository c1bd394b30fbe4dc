"""The file of chats, used from one thread: the event loop never waits for a disk."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gptoss_local.base.errors import HistoryError
from gptoss_local.base.settings import PASSPHRASE, take_passphrase
from gptoss_local.talk.history import History

T = TypeVar("T")

_log = logging.getLogger("gptoss")


class ChatStore:
    """A `History` in its own thread, opened with the first call and GPTOSS_PASSPHRASE."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passphrase = take_passphrase()
        self._thread = ThreadPoolExecutor(1, "chats")
        self._history: History | None = None

    async def call(self, work: Callable[[History], T], chat_id: int | None = None) -> T:
        """Do something with the history of `chat_id`, or the file's; calls run one by one."""

        def run() -> T:
            self._history = self._history or self._open()
            return work(self._history.of(chat_id))

        # A caller that leaves does not stop its call.
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _open(self) -> History:
        history = History(self._path)
        passphrase, self._passphrase = self._passphrase, ""
        if history.lock.is_locked and passphrase:
            try:
                history.lock.unlock(passphrase)
            except HistoryError as error:
                _log.warning("%s: %s", PASSPHRASE, error.message)
        return history

    async def close(self) -> None:
        """Close the file after all calls; turns that still stream here become `stopped`."""

        def run() -> None:
            if self._history is not None:
                self._history.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, run)
        self._thread.shutdown()
