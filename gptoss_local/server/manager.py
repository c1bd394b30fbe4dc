"""Which models are loaded: loads on demand, restarts dead engines, unloads after keep-alive.

Several models stay in memory as far as it allows. A request for a loaded model is served at once,
whatever loads or waits beside it; one load runs at a time. Thread: one event loop.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from gptoss_local.chat import ChatEvent, ChatRequest, RawRequest, Vocabulary, answer
from gptoss_local.errors import (
    EngineCrashedError,
    GptOssError,
    ModelLoadError,
    ServerBusyError,
)
from gptoss_local.progress import each_step
from gptoss_local.server.loading import LoadedModel, load_model, read_vocabulary
from gptoss_local.server.metrics import Counters
from gptoss_local.server.model_defaults import RequestT, begin, default_n_ctx
from gptoss_local.server.placing import STEP_BYTES, fits_beside, plan_load
from gptoss_local.settings import Settings
from gptoss_local.store import ModelEntry, find_model, read_info

_log = logging.getLogger("gptoss")

_MAX_STEPS = 4  # plans with ever more room left free, after the first
_CLAIM_S = 10.0  # a model that was loaded for clients who have left meanwhile stays so long


class ModelManager:
    """Owner of the engine processes.

    Args:
        settings: Folders, default context, threads, keep-alive, and how much at once.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        self._models: dict[str, LoadedModel] = {}  # by weights; the least recently used first
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Lock()  # held while a model is loaded, and room made for it
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_requests = 0

    @property
    def loaded(self) -> list[LoadedModel]:
        """The models in memory whose engines live."""
        return [model for model in self._models.values() if model.engine.is_alive]

    @asynccontextmanager
    async def use(
        self, name: str, *, n_ctx: int | None = None, keep_alive_s: float | None = None
    ) -> AsyncIterator[LoadedModel]:
        """Hold a model for one request, loading it first where needed.

        Args:
            name: As the client typed it.
            n_ctx: Context the request needs, in tokens; a loaded model with more is kept.
            keep_alive_s: New keep-alive of the model; it stays until another request changes it.

        Raises:
            ModelNotFoundError: no such model.
            ServerBusyError: too many requests wait already.
            EngineError: it cannot be loaded.
        """
        if self._n_requests >= self.settings.num_parallel + self.settings.max_queue:
            raise ServerBusyError(
                "server busy, please try again.  maximum pending requests exceeded",
                hint="GPTOSS_MAX_QUEUE says how many may wait.",
            )
        self._n_requests += 1
        try:
            model = await self._ready(name, n_ctx)
            if keep_alive_s is not None:
                model.keep_alive_s = keep_alive_s
            self._acquire(model)
            try:
                yield model
            finally:
                self._release(model)
        finally:
            self._n_requests -= 1

    async def answer(
        self,
        name: str,
        request: ChatRequest | RawRequest,
        *,
        n_ctx: int | None = None,
        keep_alive_s: float | None = None,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Hold a model for one answer and yield its events; arguments and errors as `use`.

        The request gets the beginning that the model's defaults say.
        """
        self.counters.n_active += 1
        try:
            request = self.begun(name, request)
            async with (
                self.use(name, n_ctx=n_ctx, keep_alive_s=keep_alive_s) as model,
                aclosing(answer(model.engine, model.vocabulary, request)) as events,
            ):
                async for event in events:
                    self.counters.add(event)
                    yield event
        except GptOssError as error:
            self.counters.ended(type(error).__name__)
            raise
        except (GeneratorExit, asyncio.CancelledError):
            self.counters.ended("left")
            raise
        finally:
            self.counters.n_active -= 1

    def begun(self, name: str, request: RequestT) -> RequestT:
        """A request with the messages of its model's defaults. Raises ModelNotFoundError."""
        return begin(request, find_model(name, self.settings).defaults)

    async def vocabulary(self, name: str) -> Vocabulary:
        """The vocabulary of a model, without loading it.

        Raises:
            ModelNotFoundError: no such model.
            ModelLoadError: its file cannot be read.
        """
        entry = find_model(name, self.settings)
        model = self._models.get(entry.weights_id)
        if model is not None and model.serves(None):
            return model.vocabulary
        path = await asyncio.to_thread(entry.ensure_file, self.settings)
        return await asyncio.to_thread(read_vocabulary, path, self.settings)

    async def unload(self, name: str) -> None:
        """Unload a model once its running requests are done; not loaded is no error.

        Raises:
            ModelNotFoundError: no such model.
        """
        model = self._models.get(find_model(name, self.settings).weights_id)
        if model is not None:  # also if the client leaves while it waits
            await asyncio.shield(self._spawn(self._unload(model)))

    async def close(self) -> None:
        """End the engines now, with whatever runs on them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for model in self._models.values():
            _stop_expiry(model)
            await model.engine.close()
        self._models.clear()

    async def _ready(self, name: str, n_ctx: int | None) -> LoadedModel:
        """Return a loaded model that serves the request; the caller acquires it without awaiting.

        Requests for one model share its load, which goes on when their clients leave.
        """
        while True:
            entry = find_model(name, self.settings)
            wanted_n_ctx = n_ctx or default_n_ctx(entry.defaults)
            model = self._models.get(entry.weights_id)
            if model is not None and model.serves(wanted_n_ctx):
                model.entry = entry
                return model
            task = self._starting.get(entry.weights_id)
            if task is None or task.done():
                task = self._spawn(self._start(entry.name, wanted_n_ctx))
                self._starting[entry.weights_id] = task
            await asyncio.shield(task)

    async def _start(self, name: str, n_ctx: int | None) -> None:
        """Task: load a model, after whatever has to go for it."""
        async with self._room:
            entry = find_model(name, self.settings)
            path = await asyncio.to_thread(entry.ensure_file, self.settings, each_step(_log.info))
            entry = find_model(name, self.settings)  # an embedded model has a file now
            leaving = [  # dead, changed, or with too little context
                old
                for old in self._models.values()
                if old.entry.weights_id == entry.weights_id or old.entry.name == name
            ]
            if leaving:  # no model goes for one that does not fit in its place
                freed = [old.engine for old in leaving if old.engine.is_alive]
                await asyncio.to_thread(plan_load, path, self.settings, n_ctx, freed=freed)
            for old in leaving:
                await self._unload(old)
            model = await self._load(entry, path, n_ctx)
            self._models[entry.weights_id] = model
            self._rest(model, max(model.keep_alive_s, _CLAIM_S))

    async def _load(self, entry: ModelEntry, path: Path, n_ctx: int | None) -> LoadedModel:
        """Load a model, and unload others where it does not fit beside them.

        What does not fit on a GPU though it was planned to is planned with more room left free.
        """
        info = await asyncio.to_thread(read_info, path)  # a broken file costs no other its place
        while self._models and (
            len(self._models) >= self.settings.max_loaded_models
            or not await self._fits(path, n_ctx)
        ):
            await self._unload(self._next_to_go())
        for n_steps in range(_MAX_STEPS + 1):
            plan = await asyncio.to_thread(
                plan_load, path, self.settings, n_ctx, extra_margin_bytes=n_steps * STEP_BYTES
            )
            try:
                return await load_model(entry, path, info, plan, self.settings)
            except (ModelLoadError, EngineCrashedError) as error:
                is_memory = isinstance(error, EngineCrashedError) or "alloc" in error.message
                if n_steps == _MAX_STEPS or not plan.uses_gpu or not is_memory:
                    raise
                _log.warning("%s does not fit as planned (%s)", entry.name, error.message)
            while self._models:
                await self._unload(self._next_to_go())
        raise AssertionError("the last step returns or raises")

    async def _fits(self, path: Path, n_ctx: int | None) -> bool:
        others = [model.engine for model in self.loaded]
        return await asyncio.to_thread(fits_beside, path, self.settings, n_ctx, others)

    def _next_to_go(self) -> LoadedModel:
        """One that leaves anyway, or is idle, or else the one that was least recently used."""
        return min(self._models.values(), key=lambda m: (not m.is_leaving, m.n_users > 0))

    async def _unload(self, model: LoadedModel) -> None:
        """Take no more requests for a model, wait until it is idle, and end its process."""
        model.is_leaving = True
        if model.n_users:
            await model.idle.wait()
        _stop_expiry(model)
        await model.engine.close()
        key = model.entry.weights_id
        if self._models.get(key) is model:  # its memory is free only now
            del self._models[key]
            _log.info("unloaded %s", model.entry.name)

    def _acquire(self, model: LoadedModel) -> None:
        _stop_expiry(model)
        model.n_users += 1
        model.idle.clear()
        key = model.entry.weights_id
        self._models[key] = self._models.pop(key)

    def _release(self, model: LoadedModel) -> None:
        """Start the keep-alive clock with the last user. It awaits nothing: tasks end in it."""
        model.n_users -= 1
        if not model.n_users:
            model.idle.set()
            self._rest(model, model.keep_alive_s)

    def _rest(self, model: LoadedModel, keep_alive_s: float) -> None:
        """Unload an idle model later; negative: never."""
        _stop_expiry(model)
        if model.keep_alive_s >= 0 and not model.is_leaving:
            model.expires_s = time.monotonic() + keep_alive_s
            loop = asyncio.get_running_loop()
            model.expiry = loop.call_later(keep_alive_s, self._expire, model)

    def _expire(self, model: LoadedModel) -> None:
        model.is_leaving = True  # before a request can come and take it
        self._spawn(self._unload(model))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Take note of an error that perhaps nobody waits for any more."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.debug("%s", error)


def _stop_expiry(model: LoadedModel) -> None:
    model.expires_s = None
    if model.expiry is not None:
        model.expiry.cancel()
        model.expiry = None
