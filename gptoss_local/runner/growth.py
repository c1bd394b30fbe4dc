"""Larger contexts for prompts that need them, by one more load, unless a setting fixes the size."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial

from gptoss_local.base.errors import ContextOverflowError, DoesNotFitError
from gptoss_local.base.settings import Settings
from gptoss_local.harmony import ChatRequest, Growing, RawRequest
from gptoss_local.machine.plan.measured import read_measured
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.planning import measured_file, plan_load

_log = logging.getLogger("gptoss")

_ROOM = 2048  # tokens that an answer should find free after its prompt

may_reload: ContextVar[bool] = ContextVar("may_reload", default=True)
"""True if a request may have a loaded model loaded again, with more context."""


class GrowingContext:
    """The context of one answer, which grows once if its prompt needs more.

    It does not grow if the user or the request sets its size, or the request may not reload.
    `n_ctx`: tokens to load the model with; None leaves it to the plan.
    """

    def __init__(
        self, request: ChatRequest | RawRequest, settings: Settings, n_ctx: int | None
    ) -> None:
        self.n_ctx = n_ctx
        self._asked_n_ctx = n_ctx
        self._settings = settings
        is_wanted = isinstance(request, RawRequest) or request.may_grow
        self._may_grow = is_wanted and may_reload.get()
        self._is_watched = isinstance(request, ChatRequest) and request.reports_prefill
        self._has_tried = False
        self._grown: Growing | None = None

    @property
    def news(self) -> list[Growing]:
        return [self._grown] if self._grown and self._is_watched else []

    def n_room(self, model: LoadedModel | RemoteModel) -> int:
        """Return the tokens that must be free after the prompt, or else the context grows."""
        return _ROOM if isinstance(model, LoadedModel) and self._can_grow(model) else 0

    @asynccontextmanager
    async def instead_of_overflow(self, model: LoadedModel | RemoteModel) -> AsyncIterator[None]:
        """Run an answer; if the context is too small, set `n_ctx` to a larger one or raise."""
        try:
            yield
        except ContextOverflowError as error:
            if isinstance(model, RemoteModel) or error.n_prompt is None:
                raise  # the context there is fixed
            if not self._can_grow(model):
                self._advise(error, model)
                raise
            self._has_tried = True
            n_ctx = await _larger_n_ctx(model, self._settings, error.n_prompt)
            if n_ctx is not None:
                self._grown = Growing(error.n_prompt, n_ctx, model.engine.loaded.n_ctx)
            self.n_ctx = n_ctx

    def _can_grow(self, model: LoadedModel) -> bool:
        return self._may_grow and not self._has_tried and not self._limit(model)

    def _limit(self, model: LoadedModel) -> str:
        if self._asked_n_ctx:
            return "num_ctx"
        if model.entry.defaults.n_ctx:
            return f"num_ctx of {model.entry.name}"
        return "GPTOSS_CONTEXT_LENGTH" if self._settings.context_length else ""

    def _advise(self, error: ContextOverflowError, model: LoadedModel) -> None:
        if error.n_prompt is None or error.n_prompt >= error.n_ctx_max:
            return
        if not may_reload.get():
            error.hint = "Shorten it: only the server's owner has a model loaded with more context."
        elif limit := self._limit(model):
            error.hint = f"{limit} limits it; without that, the context grows as a prompt needs it."
        elif self._has_tried:
            error.hint = (
                "Memory has no room for a larger context: "
                f"gptoss plan {model.entry.name} --ctx {error.n_prompt + _ROOM}"
            )


async def _larger_n_ctx(model: LoadedModel, settings: Settings, n_prompt: int) -> int | None:
    """Return twice the present context if that fits, or as much as the prompt needs, or None."""
    loaded = model.engine.loaded
    if n_prompt >= loaded.n_ctx_train or model.entry.path is None:
        return None
    needed = n_prompt + _ROOM
    doubled = loaded.n_ctx * 2 ** math.ceil(math.log2(needed / loaded.n_ctx))
    known = read_measured(await asyncio.to_thread(measured_file, model.entry, settings))
    plan = partial(plan_load, model.entry, settings, freed=[model.engine], attempt=known.attempt)
    for wanted in (doubled, needed):
        n_ctx = min(wanted, loaded.n_ctx_train)
        if n_ctx <= loaded.n_ctx:
            return None
        try:
            await asyncio.to_thread(plan, n_ctx)
        except DoesNotFitError:
            continue
        _log.info("%s: a prompt of %d tokens, so %d of context", model.entry.name, n_prompt, n_ctx)
        return n_ctx
    return None
