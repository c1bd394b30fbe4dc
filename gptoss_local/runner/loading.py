"""Loads a file as a model, once its place in memory is planned."""

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from gptoss_local.base.errors import EngineError
from gptoss_local.base.formats.gguf_file import read_array
from gptoss_local.base.formats.o200k import TYPES_KEY
from gptoss_local.base.settings import Settings
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Load
from gptoss_local.harmony import Vocabulary
from gptoss_local.machine.plan.measured import (
    LoadOutcome,
    Measured,
    Steps,
    plan_id,
    read_measured,
)
from gptoss_local.machine.plan.options import Attempt
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import GGUFInfo, ModelEntry, read_info, read_tokens
from gptoss_local.runner.loads import LoadProgress
from gptoss_local.runner.measuring import calibrate, disturbance, is_due, keep
from gptoss_local.runner.planning import (
    MAX_TRIES,
    free_vram,
    load_command,
    measured_file,
    next_attempt,
    plan_load,
)

_log = logging.getLogger("gptoss")

_LOOK_S = 0.5  # between two looks whether an engine lives that others wait for


@dataclass(slots=True)
class LoadedModel:
    """A model in memory."""

    entry: ModelEntry  # the name it was last used by: several names may share their weights
    info: GGUFInfo
    plan: Plan
    engine: EngineClient
    vocabulary: Vocabulary
    keep_alive_s: float
    load_s: float
    n_users: int = 0
    is_leaving: bool = False  # it accepts no new users, and will be unloaded when idle
    expires_s: float | None = None  # on the monotonic clock; None while in use or forever
    expiry: asyncio.TimerHandle | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # set while it is not in use

    def serves(self, n_ctx: int | None) -> bool:
        if self.is_leaving or not self.engine.is_alive:
            return False
        loaded = self.engine.loaded
        return n_ctx is None or loaded.n_ctx >= min(n_ctx, loaded.n_ctx_train)

    async def wait_idle(self) -> None:
        """Wait until no sequence needs the engine, even if clients still read, or it is dead."""
        while self.n_users > len(self.engine.unread) and self.engine.is_alive:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.idle.wait(), _LOOK_S)

    def stop_expiry(self) -> None:
        self.expires_s = None
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


def read_vocabulary(path: Path) -> Vocabulary:
    """Read and check the tokenizer inside a GGUF; slow, so not in the event loop."""
    read_info(path)  # raises a clear error for a missing file
    stat = path.stat()
    return _vocabulary(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _vocabulary(path: Path, _size_bytes: int, _mtime_ns: int) -> Vocabulary:
    """Cached by file: each thread that reads it keeps 25 MB in an arena of its own (glibc)."""
    return Vocabulary.from_model(read_tokens(path), read_array(path, TYPES_KEY))


async def load_as_fits(
    entry: ModelEntry,
    path: Path,
    n_ctx: int | None,
    settings: Settings,
    progress: LoadProgress,
    make_room: Callable[[Attempt], Awaitable[None]],
) -> LoadedModel:
    """Load a model as planned, or smaller if memory turns out to be shorter.

    `make_room` unloads other models, before each try, where its plan needs that.
    """
    info = await asyncio.to_thread(read_info, path)  # a broken file costs no other its place
    known_path = await asyncio.to_thread(measured_file, entry, settings)
    known = read_measured(known_path)
    attempt, disturbed = known.attempt, ""
    for n_tries in itertools.count(1):
        await make_room(attempt)
        free = await asyncio.to_thread(free_vram, settings)
        plan_now = partial(plan_load, entry, settings, n_ctx, attempt=attempt)
        plan = await asyncio.to_thread(plan_now, tuning=known.tuning)
        is_new = is_due(plan, known) or not (known.steps and known.steps.are_of(plan))
        if n_tries == 1 and plan.uses_gpu and is_new:
            disturbed = await asyncio.to_thread(disturbance)
        if disturbed:
            _log.warning("%s, and none are kept of %s", disturbed, entry.name)
        elif n_tries == 1 and is_due(plan, known):
            load = load_command(entry, path, plan, settings, known)
            known = await calibrate(plan, load, known, known_path, progress)
            plan = await asyncio.to_thread(plan_now, tuning=known.tuning)
        progress.begin(info.size_bytes)
        try:
            load = load_command(entry, path, plan, settings, known)
            model = await load_model(entry, info, plan, load, settings, progress.report)
            # no await: a stop would lose it
            _remember(known_path, known, model, attempt, disturbed)
            return model
        except EngineError as error:
            now = await asyncio.to_thread(free_vram, settings)
            smaller = next_attempt(attempt, plan, error, free_before=free, free_now=now)
            if smaller is None or n_tries == MAX_TRIES:
                raise
            _log.warning("%s does not fit as planned (%s)", entry.name, error.message)
            attempt = smaller
    raise AssertionError("the last try returns or raises")


async def load_model(
    entry: ModelEntry,
    info: GGUFInfo,
    plan: Plan,
    load: Load,
    settings: Settings,
    on_progress: Callable[[float], None] | None = None,
) -> LoadedModel:
    """Start an engine process with a model, placed as planned; `on_progress` gets 0.0 .. 1.0."""
    start_s = time.monotonic()
    path = Path(load.model_path)
    loading = asyncio.create_task(EngineClient.start(load, on_progress=on_progress))
    try:  # the tokenizer is checked while the weights load
        vocabulary = await asyncio.to_thread(read_vocabulary, path)
        engine = await loading
    except BaseException:
        loading.cancel()
        for result in await asyncio.gather(loading, return_exceptions=True):
            if isinstance(result, EngineClient):
                await result.close()
        raise
    seconds = time.monotonic() - start_s
    _log.info("loaded %s (%d tokens) in %.2f s", entry.name, engine.loaded.n_ctx, seconds)
    return LoadedModel(entry, info, plan, engine, vocabulary, settings.keep_alive_s, seconds)


def _remember(
    path: Path, known: Measured, model: LoadedModel, attempt: Attempt, disturbed: str
) -> None:
    outcome = LoadOutcome(
        plan_id=plan_id(model.plan),
        attempt=attempt,
        buffer_bytes=model.engine.loaded.buffer_bytes,
    )
    is_same = known.outcome is not None and known.outcome.plan_id == outcome.plan_id
    now = known if is_same else msgspec.structs.replace(known, outcome=outcome)
    costs = model.engine.loaded.step_costs
    if costs is not None and not disturbed and not (known.steps and known.steps.are_of(model.plan)):
        now = msgspec.structs.replace(now, steps=Steps.now(model.plan, costs))
    if now != known:
        keep(path, now)
