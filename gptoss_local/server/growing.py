"""Larger contexts for prompts that need them, where nobody has said how large a context is to be.

A plan begins with the context that leaves answers fast. Whoever needs more gets it, at the price of
one more load, instead of an error.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Protocol

from gptoss_local.chat import ChatEvent, ChatRequest, RawRequest, answer
from gptoss_local.errors import ContextOverflowError, DoesNotFitError
from gptoss_local.plan.measured import read_measured
from gptoss_local.server.attempts import Attempt
from gptoss_local.server.loading import LoadedModel
from gptoss_local.server.model_defaults import default_n_ctx
from gptoss_local.server.placing import measured_file, plan_load
from gptoss_local.settings import Settings

_log = logging.getLogger("gptoss")

_ROOM = 2048  # tokens that an answer should find free behind its prompt


class Use(Protocol):
    """`ModelManager.use` of one model."""

    def __call__(self, *, n_ctx: int | None) -> AbstractAsyncContextManager[LoadedModel]: ...


async def answer_growing(
    use: Use, request: ChatRequest | RawRequest, settings: Settings, n_ctx: int | None
) -> AsyncGenerator[ChatEvent, None]:
    """Yield the events of an answer, in a larger context if its prompt needs one.

    Args:
        use: Holds the model meanwhile; loads it where it has less than a context.
        request: What is asked.
        settings: A context that the user has set does not grow.
        n_ctx: Nor does one that the request asks for.

    Raises:
        As `use` and `gptoss_local.chat.answer`.
    """
    has_grown = False
    while True:
        async with use(n_ctx=n_ctx) as model:
            is_said = settings.context_length or n_ctx or default_n_ctx(model.entry.defaults)
            may_grow = not (has_grown or is_said) and _may_grow(request)
            n_room = _ROOM if may_grow else 0
            run = answer(model.engine, model.vocabulary, request, n_room=n_room)
            try:
                async with aclosing(run) as events:
                    async for event in events:
                        yield event
                return
            except ContextOverflowError as error:
                if not may_grow or error.n_prompt is None:
                    raise
                n_ctx = await _larger_n_ctx(model, settings, error.n_prompt)
                has_grown = True


def _may_grow(request: ChatRequest | RawRequest) -> bool:
    return isinstance(request, RawRequest) or request.may_grow


async def _larger_n_ctx(model: LoadedModel, settings: Settings, n_prompt: int) -> int | None:
    """The context to load a model with for a prompt that is too long for the present one.

    The present one is doubled where there is room for that, so that a conversation does not need
    the next one soon; or else it is what the prompt needs. None if there is none, or none helps.
    """
    loaded, path = model.engine.loaded, model.entry.path
    if n_prompt >= loaded.n_ctx_train or path is None:
        return None
    needed = n_prompt + _ROOM
    doubled = loaded.n_ctx * 2 ** math.ceil(math.log2(needed / loaded.n_ctx))
    known = read_measured(await asyncio.to_thread(measured_file, model.entry, settings))
    plan = partial(plan_load, path, settings, freed=[model.engine], attempt=Attempt.after(known))
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
