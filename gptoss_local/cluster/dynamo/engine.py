"""Our engine as a worker of Dynamo, which is imported on demand by `gptoss_local.cli.worker`."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
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
from gptoss_local.base.formats.o200k import VOCAB_SIZE
from gptoss_local.base.types import Penalties, SamplingParams, Usage
from gptoss_local.base.validation import in_words
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import BlocksChanged, Finished, Prefilled, Tokens
from gptoss_local.models.store import ModelEntry
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager

_N_LOGPROBS_MAX = 20
_GROUPS = ("sampling_options", "stop_conditions", "output_options")
_FRONTENDS = {  # done by the frontend with the text
    *("stop", "include_stop_str_in_output"),
    *("skip_special_tokens", "formatted_prompt", "return_tokens_as_token_ids"),
}
_OFF: dict[str, tuple[Any, ...]] = {  # not done here, and the value that says that it is not wanted
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "min_tokens": (0,),
    "prompt_logprobs": (),
    "max_thinking_tokens": (),
    "guided_decoding": (),
}
_ELSEWHERE = ("multi_modal_data", "prompt_embeds", "prefill_result")


_TokenId = Annotated[int, msgspec.Meta(ge=0, lt=VOCAB_SIZE)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _EngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Our engine's options of all three groups, by Dynamo's names."""

    temperature: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    top_p: _Share = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=-1)] = 0
    min_p: _Share = 0.0
    seed: int | None = None
    repetition_penalty: _Positive = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[_TokenId, float] = {}
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    stop_token_ids: list[int] = []
    stop_token_ids_visible: list[int] = []
    stop_token_ids_hidden: list[int] = []
    ignore_eos: bool = False
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=_N_LOGPROBS_MAX)] | None = None


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for one answer; as for `Engine.generate`."""

    prompt: list[int]
    sampling: SamplingParams
    stop_tokens: list[int]
    max_tokens: int | None
    n_logprobs: int | None
    priority: int


def read_request(request: Mapping[str, Any]) -> WorkerRequest:
    """Return what to ask the engine for; UsageError for unsupported or invalid values."""
    wanted: dict[str, Any] = {}
    for group in _GROUPS:
        wanted |= {n: value for n, value in (request.get(group) or {}).items() if value is not None}
    refused = [name for name, off in _OFF.items() if name in wanted and wanted[name] not in off]
    refused += [name for name in _ELSEWHERE if request.get(name)]
    if refused:
        hint = "A gptoss server in front of the frontend holds formats: docs/dynamo.md."
        raise UsageError(
            f"this worker does not know {', '.join(refused)}",
            hint=hint if "guided_decoding" in refused else "",
        )
    taken = {n: value for n, value in wanted.items() if n not in _OFF and n not in _FRONTENDS}
    try:
        prompt = msgspec.convert(request["token_ids"], list[_TokenId])
        options = msgspec.convert(taken, _EngineOptions, strict=False)
        priority = msgspec.convert((request.get("routing") or {}).get("priority") or 0, int)
    except msgspec.ValidationError as error:
        raise UsageError(in_words(error, taken)) from error
    return WorkerRequest(
        prompt=prompt,
        sampling=_sampling(options),
        stop_tokens=_stop_tokens(options, request.get("eos_token_ids") or []),
        max_tokens=options.max_tokens,
        n_logprobs=options.logprobs,
        priority=priority,
    )


def _sampling(options: _EngineOptions) -> SamplingParams:
    penalties = Penalties(
        repeat=options.repetition_penalty,
        presence=options.presence_penalty,
        frequency=options.frequency_penalty,
    )
    return SamplingParams(
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=max(0, options.top_k),  # -1 is off, too
        min_p=options.min_p,
        seed=options.seed,
        penalties=None if penalties == Penalties() else penalties,
        logit_bias=tuple(options.logit_bias.items()),
    )


def _stop_tokens(options: _EngineOptions, ends: list[int]) -> list[int]:
    """Return the ids that end an answer; the hidden ones are the model's own."""
    hidden = set(options.stop_token_ids_hidden) - (set(ends) if options.ignore_eos else set())
    return sorted({*options.stop_token_ids, *options.stop_token_ids_visible, *hidden})


N_BLOCK_TOKENS = 16
"""Dynamo compares prompts in steps of as many tokens."""


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
                    generated = model.engine.generate(
                        asked.prompt,
                        asked.sampling,
                        stop_tokens=asked.stop_tokens,
                        max_tokens=asked.max_tokens,
                        n_logprobs=asked.n_logprobs,
                        priority=asked.priority,
                    )
                    async with aclosing(generated) as events:
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
    events: AsyncGenerator[Prefilled | Tokens | Finished, None], asked: WorkerRequest
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
