"""Load models on demand, restart dead engines, and unload them after their keep-alive.

Several models stay in memory as far as it allows. Loaded ones serve while others load; one load
runs at a time. Thread: one event loop.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from gptoss_local.api.models import LoadStatus
from gptoss_local.base.errors import ComputeError, EngineCrashedError, GptOssError, ServerBusyError
from gptoss_local.base.progress import each_step
from gptoss_local.base.settings import Settings
from gptoss_local.engine.interface import caller
from gptoss_local.harmony import (
    ChatEvent,
    ChatRequest,
    Done,
    Prefilling,
    RawRequest,
    Started,
    Vocabulary,
    answer,
    load_vocabulary,
)
from gptoss_local.machine.plan.options import Attempt, most_answers
from gptoss_local.models.store import ModelEntry, find_model, read_info
from gptoss_local.runner import losses
from gptoss_local.runner.counters import Counters
from gptoss_local.runner.elsewhere import RemoteModel, RemoteModels
from gptoss_local.runner.energy import Energy
from gptoss_local.runner.growth import GrowingContext, may_reload
from gptoss_local.runner.loading import LoadedModel, load_as_fits, read_vocabulary
from gptoss_local.runner.loads import LoadProgress
from gptoss_local.runner.planning import choose_unload, plan_load

_log = logging.getLogger("gptoss")

_CLAIM_S = 10.0  # a model that was loaded for clients who have left meanwhile stays so long


class _Tries:
    """The tries of one answer: a second one if its engine is lost before anything was sent."""

    def __init__(self) -> None:
        self.has_sent = self.has_lost = False

    @asynccontextmanager
    async def once_more(self, model: LoadedModel | RemoteModel) -> AsyncIterator[None]:
        try:
            yield
        except (ComputeError, EngineCrashedError):
            is_asked = isinstance(model, LoadedModel) and model.engine.is_closed
            if self.has_sent or self.has_lost or is_asked:
                raise
            self.has_lost = True


class ModelManager:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        self.energy = Energy()
        self._models: dict[str, LoadedModel] = {}  # by weights; the least recently used first
        self._remote = RemoteModels(settings)
        self._loads: dict[str, LoadProgress] = {}  # by weights; the last one of each may be over
        self._room = asyncio.Lock()  # held while a model is loaded, and room made for it
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: Counter[str] = Counter()  # by caller

    @property
    def loaded(self) -> list[LoadedModel]:
        return [model for model in self._models.values() if model.engine.is_alive]

    @property
    def remote(self) -> list[RemoteModel]:
        return self._remote.connected

    @property
    def loading(self) -> list[LoadStatus]:
        return [load.status for load in self._loads.values() if not load.is_over]

    async def load(
        self, entry: ModelEntry, *, n_ctx: int | None = None, keep_alive_s: float | None = None
    ) -> AsyncGenerator[LoadStatus, None]:
        """Load a model, even if its client leaves; arguments and errors as `use`."""
        ready = asyncio.ensure_future(self._touch(entry, n_ctx, keep_alive_s))
        try:
            await asyncio.sleep(0)  # now its load is there, if it needs one
            if load := self._load_of(entry):
                async for status in load.watch(ready):
                    yield status
            await ready
        finally:
            ready.cancel()
        yield LoadStatus(entry.name, "success")

    async def _touch(
        self, entry: ModelEntry, n_ctx: int | None, keep_alive_s: float | None
    ) -> None:
        async with self.use(entry, n_ctx=n_ctx, keep_alive_s=keep_alive_s):
            pass

    @asynccontextmanager
    async def use(
        self, entry: ModelEntry, *, n_ctx: int | None = None, keep_alive_s: float | None = None
    ) -> AsyncIterator[LoadedModel | RemoteModel]:
        """Hold a model for one request, loading it first where needed.

        A loaded model with more context than `n_ctx` is kept, as is any without `may_reload`. A new
        `keep_alive_s` stays until another request changes it. Upstream models ignore both. Raises
        ServerBusyError if too many requests wait.
        """
        name, _ = caller.get()
        n_room = most_answers(self.settings) + self.settings.max_queue
        # Twice the room of one caller: half of that stays free for others, and so on.
        if self._requests[name] >= min(n_room, 2 * n_room - self._requests.total()):
            raise ServerBusyError(
                "server busy, please try again.  maximum pending requests exceeded",
                hint="GPTOSS_MAX_QUEUE says how many may wait.",
            )
        self._requests[name] += 1
        try:
            if entry.upstream is not None:
                yield await self._remote.get(entry, entry.upstream)
                return
            model = await self._ready(entry, n_ctx)
            if keep_alive_s is not None:
                model.keep_alive_s = keep_alive_s
            self._acquire(model)
            try:
                yield model
            finally:
                self._release(model)
        finally:
            self._requests -= Counter([name])  # keeps no zero

    async def answer(
        self,
        entry: ModelEntry,
        request: ChatRequest | RawRequest,
        *,
        n_ctx: int | None = None,
        keep_alive_s: float | None = None,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Hold a model for one answer and yield its events; arguments as `use`.

        The context grows if the prompt needs it and no setting fixes it. If the engine is lost
        before the first piece, another one is asked, once.
        """
        growth, tries = GrowingContext(request, self.settings, n_ctx), _Tries()
        begun_ns = ready_ns = time.monotonic_ns()
        with (
            self.counters.answering(entry.name) as record,
            self.energy.answering(entry.name) as energy,
        ):
            while True:
                for news in growth.news:
                    yield news
                async with (
                    self.use(entry, n_ctx=growth.n_ctx, keep_alive_s=keep_alive_s) as model,
                    growth.instead_of_overflow(model),
                    tries.once_more(model),
                    aclosing(
                        answer(
                            model.engine,
                            model.vocabulary,
                            request,
                            n_room=growth.n_room(model),
                            on_tokens=energy.add_tokens,
                        )
                    ) as events,
                ):
                    async for event in events:
                        if isinstance(event, Started):
                            self.energy.begin(energy, model)
                            ready_ns = time.monotonic_ns()
                            if tries.has_lost:
                                continue
                        elif isinstance(event, Done):
                            total_ns = time.monotonic_ns() - begun_ns
                            load_ns = ready_ns - begun_ns
                            event = msgspec.structs.replace(
                                event, load_ns=load_ns, total_ns=total_ns, joules=energy.joules
                            )
                            self.energy.end(energy)
                        self.counters.add(record, event)
                        tries.has_sent |= not isinstance(event, Started | Prefilling)
                        yield event
                    return

    async def vocabulary(self, entry: ModelEntry) -> Vocabulary:
        """Return the vocabulary of a model, without loading it."""
        model = self._models.get(entry.weights_id)
        if model is not None and model.serves(None):
            return model.vocabulary
        if entry.upstream is not None:
            return await asyncio.to_thread(load_vocabulary)
        path = await asyncio.to_thread(entry.ensure_file, self.settings)
        return await asyncio.to_thread(read_vocabulary, path)

    async def n_ctx_train(self, entry: ModelEntry) -> int:
        """Return the longest context of a model; of an upstream one, the context there."""
        if entry.upstream is not None:
            async with self.use(entry) as model:
                return model.engine.loaded.n_ctx
        path = await asyncio.to_thread(entry.ensure_file, self.settings)
        return (await asyncio.to_thread(read_info, path)).n_ctx_train

    async def unload(self, entry: ModelEntry) -> None:
        """Unload a model once its requests are done; a load is stopped, and its requests fail."""
        if entry.upstream is not None:
            self._remote.drop(entry)
            return
        if load := self._load_of(entry):
            await load.stop()
        if model := self._models.get(entry.weights_id):
            await self._let_go(model)  # also if the client leaves while it waits

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for model in self._models.values():
            model.stop_expiry()
            await model.engine.close()
        self._models.clear()
        await self.energy.rest()
        await self._remote.close()

    async def _ready(self, entry: ModelEntry, n_ctx: int | None) -> LoadedModel:
        """Return a loaded model; requests share a load. The caller acquires it at once."""
        while True:
            wanted_n_ctx = (n_ctx if may_reload.get() else None) or entry.defaults.n_ctx
            model = self._models.get(entry.weights_id)
            if model is not None and model.serves(wanted_n_ctx if may_reload.get() else None):
                model.entry = entry
                return model
            load = self._load_of(entry)
            if load is None:
                load = self._loads[entry.weights_id] = LoadProgress(entry.name)
                load.task = self._spawn(self._start(entry.name, wanted_n_ctx, load))
            await load.wait()
            entry = find_model(entry.name, self.settings)  # an embedded model has a file now

    def _load_of(self, entry: ModelEntry) -> LoadProgress | None:
        load = self._loads.get(entry.weights_id)
        return None if load is None or load.is_over else load

    async def _start(self, name: str, n_ctx: int | None, progress: LoadProgress) -> None:
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
                await asyncio.to_thread(plan_load, entry, self.settings, n_ctx, freed=freed)
            for old in leaving:
                await self._let_go(old)
            make_room = partial(self._make_room, entry, n_ctx)
            model = await load_as_fits(entry, path, n_ctx, self.settings, progress, make_room)
            model.engine.on_crash = partial(self._lost, entry.name)
            self._models[entry.weights_id] = model
            self._rest(model, max(model.keep_alive_s, _CLAIM_S))

    def _lost(self, name: str, error: GptOssError) -> None:
        self.counters.crashes[name, type(error).__name__] += 1
        _log.error("the model runner of %s is lost: %s", name, error.message)
        losses.record(self.settings, name, error)

    async def _make_room(self, entry: ModelEntry, n_ctx: int | None, attempt: Attempt) -> None:
        """Unload models, one at a time, until another has about as good a plan as without them."""
        for model in list(self._models.values()):
            if not model.engine.is_alive:
                await self._let_go(model)
        while len(self._models) >= self.settings.max_loaded_models:
            await self._let_go(self._next_to_go()[0])
        while models := self._next_to_go():
            engines = [model.engine for model in models]
            engine = await asyncio.to_thread(
                choose_unload, entry, self.settings, n_ctx, engines, attempt
            )
            if engine is None:
                return
            await self._let_go(models[engines.index(engine)])

    def _next_to_go(self) -> list[LoadedModel]:
        return sorted(self._models.values(), key=lambda m: (not m.is_leaving, m.n_users > 0))

    async def _let_go(self, model: LoadedModel) -> None:
        """Unload a model, even if the load that needs its room is stopped meanwhile."""
        await asyncio.shield(self._spawn(self._unload(model)))

    async def _unload(self, model: LoadedModel) -> None:
        model.is_leaving = True
        await model.wait_idle()
        model.stop_expiry()
        await model.engine.close()
        key = model.entry.weights_id
        if self._models.get(key) is model:  # its memory is free only now
            del self._models[key]
            _log.info("unloaded %s", model.entry.name)
        if not self._models:
            await self.energy.rest()

    def _acquire(self, model: LoadedModel) -> None:
        model.stop_expiry()
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
        model.stop_expiry()
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
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.debug("%s", error)
