"""How a file becomes a model in memory, and what that needs."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gptoss_local.chat import Vocabulary
from gptoss_local.chat.vocabulary import MESSAGE_ENDS
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX, Load
from gptoss_local.settings import Settings
from gptoss_local.store import GGUFInfo, ModelEntry, read_tokens

_log = logging.getLogger("gptoss")

# Below this size a decode step is too short to share: nano takes 4.4 ms with one thread or two, and
# many times that when a second thread has to wait for a busy core.
_SMALL_BYTES = 1_000_000_000
_BUFFER_BYTES = 500_000_000  # compute buffers, vocabulary, checkpoints: roughly, and rather more


@dataclass(slots=True)
class LoadedModel:
    """A model in memory. `expires_s` is on the monotonic clock; None while in use or forever.

    Attributes:
        entry: The name it was last used by: several names may share their weights.
        is_leaving: It takes no new users: it will be unloaded when it is idle.
        idle: Set while nobody uses it.
    """

    entry: ModelEntry
    info: GGUFInfo
    engine: EngineClient
    vocabulary: Vocabulary
    keep_alive_s: float
    n_users: int = 0
    is_leaving: bool = False
    expires_s: float | None = None
    expiry: asyncio.TimerHandle | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def serves(self, n_ctx: int | None) -> bool:
        """Whether it takes requests that need `n_ctx` tokens of context."""
        if self.is_leaving or not self.engine.is_alive:
            return False
        loaded = self.engine.loaded
        return n_ctx is None or loaded.n_ctx >= min(n_ctx, loaded.n_ctx_train)


def read_vocabulary(path: Path, settings: Settings) -> Vocabulary:
    """Read and check the tokenizer inside a GGUF; takes a moment, so not in the event loop."""
    return Vocabulary.from_model(read_tokens(path), settings.cache_dir)


def fits(info: GGUFInfo, n_ctx: int) -> bool:
    """Whether another model would fit into free memory beside those that are loaded.

    Of the host's memory, and from above: half of the layers keep a short window only. What a GPU
    holds is known when it refuses.
    """
    prefix = f"{info.architecture}."

    def number(key: str) -> int:
        return int(info.metadata.get(prefix + key) or 0)

    n_cached = number("attention.head_count_kv") * number("attention.key_length")
    cache_bytes = n_ctx * number("block_count") * n_cached * 2 * 2  # keys and values in 16 bit
    needed_bytes = info.size_bytes + cache_bytes + _BUFFER_BYTES
    return needed_bytes < psutil.virtual_memory().available


async def load_model(
    entry: ModelEntry, path: Path, info: GGUFInfo, n_ctx: int, settings: Settings
) -> LoadedModel:
    """Start an engine process with a model and a context of `n_ctx` tokens.

    Raises:
        ModelLoadError: the file is broken, or llama.cpp refused it.
        EngineCrashedError: the process died while loading.
    """
    start_s = time.monotonic()
    n_threads = settings.threads or psutil.cpu_count(logical=False) or 1
    is_small = info.size_bytes < _SMALL_BYTES
    load = Load(
        model_path=str(path),
        n_ctx=n_ctx,
        n_threads_prefill=n_threads,
        n_threads_decode=1 if is_small else n_threads,
        n_gpu_layers=settings.gpu_layers,
        n_seq=settings.num_parallel,
        n_draft_max=N_DRAFT_MAX if settings.speculation else 0,
        checkpoint_bytes=settings.checkpoint_bytes,
        boundary_tokens=MESSAGE_ENDS,
        prefix_dir=str(settings.prefix_dir),
        prefix_disk_bytes=settings.prefix_disk_bytes,
        prefix_save_s=settings.prefix_save_s,
        model_digest=entry.weights_id,
    )
    loading = asyncio.create_task(EngineClient.start(load))
    try:  # the tokenizer is checked while the weights load
        vocabulary = await asyncio.to_thread(read_vocabulary, path, settings)
        engine = await loading
    except BaseException:
        loading.cancel()
        for result in await asyncio.gather(loading, return_exceptions=True):
            if isinstance(result, EngineClient):
                await result.close()
        raise
    _log.info("loaded %s (%d tokens) in %.2f s", entry.name, n_ctx, time.monotonic() - start_s)
    return LoadedModel(entry, info, engine, vocabulary, settings.keep_alive_s)
