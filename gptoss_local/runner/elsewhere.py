"""Upstream models: a connection each, which takes no memory and stays open."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gptoss_local.base.settings import Settings
from gptoss_local.harmony import Vocabulary, load_vocabulary
from gptoss_local.models import nano
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.models.store import ModelEntry
from gptoss_local.runner.upstream.answer import probe

if TYPE_CHECKING:
    from gptoss_local.runner.upstream.client import Upstream

_log = logging.getLogger("gptoss")

_LOOK_S = 0.5  # between two looks whether a connection is idle


@dataclass(slots=True)
class RemoteModel:
    entry: ModelEntry
    engine: "Upstream"
    vocabulary: Vocabulary


class RemoteModels:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: dict[str, RemoteModel] = {}  # by name
        self._leaving: dict[asyncio.Task[None], RemoteModel] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def connected(self) -> list[RemoteModel]:
        return list(self._models.values())

    async def get(self, entry: ModelEntry, address: UpstreamAddress) -> RemoteModel:
        """Return a model, connecting to it where needed; a changed address is another one."""
        async with self._locks[entry.name]:
            model = self._models.get(entry.name)
            if model is not None and model.entry.weights_id == entry.weights_id:
                model.entry = entry
                return model
            self.drop(entry)
            model = await connect(entry, address, self._settings)
            _log.info("%s is computed at %s", entry.name, ", ".join(address.urls))
            self._models[entry.name] = model
            return model

    def drop(self, entry: ModelEntry) -> None:
        if model := self._models.pop(entry.name, None):
            task = asyncio.get_running_loop().create_task(_close_idle(model))
            self._leaving[task] = model
            task.add_done_callback(self._leaving.pop)

    async def close(self) -> None:
        leaving = list(self._leaving.items())
        for task, _ in leaving:
            task.cancel()
        await asyncio.gather(*(task for task, _ in leaving), return_exceptions=True)
        for model in (*self.connected, *(model for _, model in leaving)):
            await model.engine.close()
        self._models.clear()


async def _close_idle(model: RemoteModel) -> None:
    while model.engine.n_active:
        await asyncio.sleep(_LOOK_S)
    await model.engine.close()


async def connect(entry: ModelEntry, address: UpstreamAddress, settings: Settings) -> RemoteModel:
    """Connect to an upstream, and check that it is a gpt-oss; UsageError without its key."""
    from gptoss_local.runner.upstream.client import Upstream  # PERF: httpx, 60 ms

    vocabulary = await asyncio.to_thread(load_vocabulary)
    file = await asyncio.to_thread(nano.ensure_gguf, settings.cache_dir)
    engine = Upstream(entry.name, address, vocabulary, file)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        await engine.connect(*probe(vocabulary))
        stack.pop_all()
    return RemoteModel(entry, engine, vocabulary)
