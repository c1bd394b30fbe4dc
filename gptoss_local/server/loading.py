"""How a file becomes a model in memory, once its place is planned."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from gptoss_local.chat import Vocabulary
from gptoss_local.chat.vocabulary import MESSAGE_ENDS
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX, Load
from gptoss_local.plan.outcome import Plan
from gptoss_local.settings import Settings
from gptoss_local.store import GGUFInfo, ModelEntry, read_tokens

_log = logging.getLogger("gptoss")


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
    plan: Plan
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


async def load_model(
    entry: ModelEntry, path: Path, info: GGUFInfo, plan: Plan, settings: Settings
) -> LoadedModel:
    """Start an engine process with a model, placed as planned.

    Raises:
        ModelLoadError: the file is broken, or llama.cpp refused it.
        EngineCrashedError: the process died while loading.
    """
    start_s = time.monotonic()
    load = Load(
        model_path=str(path),
        n_ctx=plan.shape.n_ctx,
        n_batch=plan.shape.n_batch,
        n_threads_prefill=plan.n_threads_prefill,
        n_threads_decode=plan.n_threads_decode,
        n_gpu_layers=plan.placement.n_gpu_layers if plan.n_gpus else settings.gpu_layers,
        devices=plan.devices,
        tensor_split=plan.tensor_split,
        tensor_overrides=plan.placement.tensor_overrides(),
        load_mode=plan.load_mode,
        offload_min_batch=plan.speed.offload_min_batch,
        n_seq=plan.shape.n_seq,
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
    seconds = time.monotonic() - start_s
    _log.info("loaded %s (%d tokens) in %.2f s", entry.name, engine.loaded.n_ctx, seconds)
    return LoadedModel(entry, info, plan, engine, vocabulary, settings.keep_alive_s)
