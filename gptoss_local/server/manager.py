"""Which model is loaded: loads on demand, restarts a dead engine, unloads after keep-alive.

One model at a time. A request for another one, or for more context, waits until the loaded one
is idle. Thread: one event loop.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from gptoss_local.chat import ChatEvent, ChatRequest, RawRequest, Vocabulary, answer
from gptoss_local.chat.vocabulary import MESSAGE_ENDS
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX, Load
from gptoss_local.errors import GptOssError
from gptoss_local.progress import each_step
from gptoss_local.server.metrics import Counters
from gptoss_local.settings import Settings
from gptoss_local.store import GGUFInfo, ModelEntry, find_model, read_info, read_tokens

_log = logging.getLogger("gptoss")

# Below this size a decode step is too short to share: nano takes 4.4 ms with one thread or two, and
# many times that when a second thread has to wait for a busy core.
_SMALL_BYTES = 1_000_000_000


@dataclass(slots=True)
class LoadedModel:
    """A model in memory. `expires_s` is on the monotonic clock; None while in use or forever."""

    entry: ModelEntry
    digest: str  # digest and info are of the file as it was loaded; it may be gone by now
    info: GGUFInfo
    engine: EngineClient
    vocabulary: Vocabulary
    keep_alive_s: float
    n_users: int = 0
    expires_s: float | None = None

    def serves(self, entry: ModelEntry, n_ctx: int | None) -> bool:
        """Whether this is `entry`, its file unchanged, with at least `n_ctx` tokens of context."""
        loaded = self.engine.loaded
        is_large_enough = n_ctx is None or loaded.n_ctx >= min(n_ctx, loaded.n_ctx_train)
        return is_large_enough and (entry.name, entry.digest) == (self.entry.name, self.digest)


class ModelManager:
    """Owner of the engine process.

    Args:
        settings: Folders, default context, threads and keep-alive.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        self._loaded: LoadedModel | None = None
        self._lock = asyncio.Lock()  # held while deciding, loading or unloading
        self._idle = asyncio.Event()  # no request uses the loaded model
        self._expiry: asyncio.TimerHandle | None = None
        self._unloading: set[asyncio.Task[None]] = set()

    @property
    def loaded(self) -> LoadedModel | None:
        """The model in memory, if its engine lives."""
        return self._loaded if self._loaded and self._loaded.engine.is_alive else None

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
            EngineError: it cannot be loaded.
        """
        async with self._lock:
            model = await self._ensure(name, n_ctx)
            if keep_alive_s is not None:
                model.keep_alive_s = keep_alive_s
            self._acquire(model)
        try:
            yield model
        finally:
            self._release(model)

    async def answer(
        self,
        name: str,
        request: ChatRequest | RawRequest,
        *,
        n_ctx: int | None = None,
        keep_alive_s: float | None = None,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Hold a model for one answer and yield its events; arguments and errors as `use`."""
        self.counters.n_active += 1
        try:
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

    async def vocabulary(self, name: str) -> Vocabulary:
        """The vocabulary of a model, without loading it.

        Raises:
            ModelNotFoundError: no such model.
            ModelLoadError: its file cannot be read.
        """
        entry = find_model(name, self.settings)
        if self.loaded is not None and self.loaded.entry.name == entry.name:
            return self.loaded.vocabulary
        path = await asyncio.to_thread(entry.ensure_file, self.settings)
        return await asyncio.to_thread(self._read_vocabulary, path)

    async def unload(self, name: str) -> None:
        """Unload a model once its running requests are done; not loaded is no error.

        Raises:
            ModelNotFoundError: no such model.
        """
        entry = find_model(name, self.settings)
        async with self._lock:
            if self._loaded is not None and self._loaded.entry.name == entry.name:
                await self._unload_idle()

    async def close(self) -> None:
        """End the engine now, with whatever runs on it."""
        self._stop_expiry()
        if self._loaded is not None:
            await self._loaded.engine.close()
            self._loaded = None

    async def _ensure(self, name: str, n_ctx: int | None) -> LoadedModel:
        """Return the loaded model if it is the one asked for and large enough, else load it."""
        entry = find_model(name, self.settings)
        current = self.loaded
        if current is not None and current.serves(entry, n_ctx):
            return current
        path = await asyncio.to_thread(entry.ensure_file, self.settings, each_step(_log.info))
        entry = find_model(name, self.settings)  # an embedded model has a file now
        await self._unload_idle()
        self._loaded = await self._load(entry, path, n_ctx or self.settings.context_length)
        return self._loaded

    async def _load(self, entry: ModelEntry, path: Path, n_ctx: int) -> LoadedModel:
        start_s = time.monotonic()
        info = read_info(path)
        n_ctx = min(n_ctx, info.n_ctx_train)
        n_threads = self.settings.threads or psutil.cpu_count(logical=False) or 1
        is_small = info.size_bytes < _SMALL_BYTES
        load = Load(
            model_path=str(path),
            n_ctx=n_ctx,
            n_threads_prefill=n_threads,
            n_threads_decode=1 if is_small else n_threads,
            n_gpu_layers=self.settings.gpu_layers,
            n_seq=self.settings.num_parallel,
            n_draft_max=N_DRAFT_MAX if self.settings.speculation else 0,
            checkpoint_bytes=self.settings.checkpoint_bytes,
            boundary_tokens=MESSAGE_ENDS,
            prefix_dir=str(self.settings.prefix_dir),
            prefix_disk_bytes=self.settings.prefix_disk_bytes,
            prefix_save_s=self.settings.prefix_save_s,
            model_digest=entry.digest,
        )
        loading = asyncio.create_task(EngineClient.start(load))
        try:  # the tokenizer is checked while the weights load
            vocabulary = await asyncio.to_thread(self._read_vocabulary, path)
            engine = await loading
        except BaseException:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            raise
        _log.info("loaded %s (%d tokens) in %.2f s", entry.name, n_ctx, time.monotonic() - start_s)
        keep_alive_s = self.settings.keep_alive_s
        return LoadedModel(entry, entry.digest, info, engine, vocabulary, keep_alive_s)

    def _read_vocabulary(self, path: Path) -> Vocabulary:
        return Vocabulary.from_model(read_tokens(path), self.settings.cache_dir)

    async def _unload_idle(self) -> None:
        """Wait until nobody uses the loaded model, then end its process. Needs the lock."""
        if self._loaded is None:
            return
        if self._loaded.n_users:
            await self._idle.wait()
        name = self._loaded.entry.name
        await self.close()
        _log.info("unloaded %s", name)

    def _acquire(self, model: LoadedModel) -> None:
        self._stop_expiry()
        model.expires_s = None
        model.n_users += 1
        self._idle.clear()

    def _release(self, model: LoadedModel) -> None:
        """Start the keep-alive clock with the last user. It awaits nothing: tasks end in it."""
        model.n_users -= 1
        if model.n_users:
            return
        self._idle.set()
        if model.keep_alive_s >= 0:
            model.expires_s = time.monotonic() + model.keep_alive_s
            loop = asyncio.get_running_loop()
            self._stop_expiry()
            self._expiry = loop.call_later(model.keep_alive_s, self._expire, model)

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self, model: LoadedModel) -> None:
        task = asyncio.get_running_loop().create_task(self._unload_expired(model))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _unload_expired(self, model: LoadedModel) -> None:
        async with self._lock:
            if self._loaded is model and not model.n_users:
                await self._unload_idle()
