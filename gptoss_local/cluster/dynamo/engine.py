"""Our engine as a worker of Dynamo, with token ids in and out.

Dynamo need not be installed: only `gptoss_local.cli.worker` imports this, on demand.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.health_check import build_health_check_payload, is_probe
from dynamo.common.backend.publisher import PushSource
from dynamo.llm import exceptions

from gptoss_local.base.errors import (
    ContextOverflowError,
    EngineCrashedError,
    GptOssError,
    ServerBusyError,
    UsageError,
)
from gptoss_local.base.types import Usage
from gptoss_local.cluster.dynamo.request import read_request
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import BlocksChanged, Finished, Generate, Prefilled, Tokens
from gptoss_local.models.store import ModelEntry
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager

N_BLOCK_TOKENS = 16  # Dynamo compares prompts in steps of as many tokens


class KvEvents:
    """All published blocks of one worker, across its engine processes. Thread: one event loop."""

    def __init__(self) -> None:
        self._publisher: Any = None  # a `dynamo.llm.KvEventPublisher`
        self._held: set[int] = set()

    def start(self, publisher: Any) -> None:
        self._publisher = publisher

    def change(self, changed: BlocksChanged) -> None:
        self._held.difference_update(changed.removed)
        events: list[dict[str, Any]] = []
        if changed.removed:
            events.append({"type": "removed", "block_hashes": changed.removed})
        for run in changed.stored:
            self._held.update(run.hashes)
            events.append(
                {
                    "type": "stored",
                    "token_ids": run.tokens,
                    "num_block_tokens": [N_BLOCK_TOKENS] * len(run.hashes),
                    "block_hashes": run.hashes,
                    "parent_hash": run.parent,
                }
            )
        if self._publisher is not None:
            self._publisher.publish_batch(events)

    def clear(self) -> None:
        """Publish an empty cache, as the engine process is gone."""
        if self._held:
            self.change(BlocksChanged(removed=sorted(self._held), stored=[]))


_log = logging.getLogger("gptoss")
_LOOK_S = 0.05  # between two looks whether the last answer is over

_EXCEPTIONS: dict[type[GptOssError], type[Exception]] = {
    UsageError: exceptions.InvalidArgument,
    ContextOverflowError: exceptions.InvalidArgument,
    ServerBusyError: exceptions.WorkerUnavailable,
    EngineCrashedError: exceptions.EngineShutdown,
}
"""Classes that a frontend and its client react to. Other errors are `Unknown`."""


class DynamoEngine(LLMEngine):  # type: ignore[misc]
    """A loaded model with the methods that Dynamo's `Worker` calls. Thread: one event loop.

    Once the worker is told to end, answers have `grace_s` seconds to finish.
    """

    def __init__(
        self,
        manager: ModelManager,
        entry: ModelEntry,
        folder: Path,
        served_name: str,
        grace_s: float,
    ) -> None:
        self._manager = manager
        self._entry = entry
        self._folder = folder
        self._served_name = served_name
        self._grace_s = grace_s
        self._kv_events = KvEvents()
        self._engine: EngineClient | None = None
        self._n_running = 0

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple["DynamoEngine", WorkerConfig]:
        """Refuse: `gptoss worker dynamo` reads the arguments; the base class wants the method."""
        raise NotImplementedError

    async def start(self, worker_id: int) -> EngineConfig:
        async with self._model() as model:
            loaded = model.engine.loaded
        return EngineConfig(
            model=str(self._folder),
            served_model_name=self._served_name,
            llm=LlmRegistration(
                context_length=loaded.n_ctx,
                kv_cache_block_size=N_BLOCK_TOKENS,
                total_kv_blocks=loaded.n_ctx // N_BLOCK_TOKENS,
                max_num_seqs=loaded.n_seq,
            ),
        )

    async def kv_event_sources(self) -> list[PushSource]:
        return [PushSource(on_ready=self._kv_events.start)]

    async def generate(
        self, request: dict[str, Any], context: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of an answer, the last one with its cost.

        Dynamo closes the iterator when the client has left, which cancels the sequence. Raises
        DynamoException by `_EXCEPTIONS`.
        """
        self._n_running += 1
        try:
            with _translated():
                async with self._model() as model:
                    if is_probe(request):
                        await model.engine.stats()
                        yield {"token_ids": [], "index": 0, "finish_reason": "stop"}
                        return
                    asked = read_request(request)
                    async with aclosing(model.engine.generate(asked)) as events:
                        async for chunk in _chunks(events, asked):
                            yield chunk
        finally:
            self._n_running -= 1

    async def health_check_payload(self) -> dict[str, Any]:
        """Return the probe that `generate` knows; it takes no slot and evicts no prefix."""
        payload: dict[str, Any] = build_health_check_payload(bos_token_id=0)
        return payload

    async def cleanup(self) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._grace_s
        if self._n_running:
            _log.info("the answers that run have %g s to finish", self._grace_s)
        while self._n_running and loop.time() < end_s:
            await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def _model(self) -> AsyncIterator[LoadedModel]:
        """Hold the model, and listen to its cache, which is empty in a new engine process."""
        async with self._manager.use(self._entry) as model:
            if not isinstance(model, LoadedModel):
                raise UsageError(f"{self._entry.name} is computed elsewhere")
            if model.engine is not self._engine:
                self._kv_events.clear()
                self._engine = model.engine
                self._engine.report_blocks(N_BLOCK_TOKENS, self._kv_events.change)
            yield model


async def _chunks(
    events: AsyncGenerator[Prefilled | Tokens | Finished, None], asked: Generate
) -> AsyncGenerator[dict[str, Any], None]:
    last: dict[str, Any] = {"token_ids": [], "index": 0}
    async for event in events:
        if isinstance(event, Tokens):
            chunk = _chunk(event)
            if event.tokens[-1] in asked.stop_tokens:
                last = chunk
            else:
                yield chunk
        elif isinstance(event, Finished):
            yield last | {"finish_reason": event.reason, "completion_usage": _usage(event.usage)}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.n_prompt,
        "completion_tokens": usage.n_generated,
        "total_tokens": usage.n_prompt + usage.n_generated,
        "prompt_tokens_details": {"cached_tokens": usage.n_cached},
    }


def _chunk(event: Tokens) -> dict[str, Any]:
    chunk: dict[str, Any] = {"token_ids": event.tokens, "index": 0}
    if event.logprobs:
        chunk["log_probs"] = [each.logprob for each in event.logprobs]
        chunk["top_logprobs"] = [
            [
                {"rank": rank, "token_id": token, "token": None, "logprob": logprob}
                for rank, (token, logprob) in enumerate(each.top, 1)
            ]
            for each in event.logprobs
        ]
    return chunk


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except GptOssError as error:
        kinds = (kind for ours, kind in _EXCEPTIONS.items() if isinstance(error, ours))
        text = f"{error.message}. {error.hint}" if error.hint else error.message
        raise next(kinds, exceptions.Unknown)(text) from error
