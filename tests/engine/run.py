"""The engine of one context, driven step by step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import (
    N_DRAFT_MAX,
    Event,
    Failed,
    Finished,
    Generate,
    Load,
    Logprob,
    Tokens,
)
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony.vocabulary import STOP_TOKENS
from gptoss_local.machine.plan.memory import Shape

N_CTX = 4096
GREEDY = SamplingParams(temperature=0)
Prompt = Callable[[str], list[int]]


def load_of(path: Path, n_ctx: int = N_CTX) -> Load:
    """As the runner has it for a CPU, but nothing of a conversation stays."""
    shape = Shape(n_ctx=n_ctx, n_batch=512, n_seq=4, n_outputs=4 + N_DRAFT_MAX)
    context = shape.context_params(n_threads_prefill=2, n_threads_decode=1)
    return Load(model_path=str(path), context=context)


def make_context(model: Model, **sizes: Any) -> Context:
    """Make a context, which is closed with its model."""
    given = {"n_ctx": N_CTX, "n_threads_prefill": 1, "n_threads_decode": 1} | sizes
    return Context(model, ContextParams(**given))


def asked(prompt: list[int], sampling: SamplingParams = GREEDY, **fields: Any) -> Generate:
    given = {"stop_tokens": STOP_TOKENS} | fields
    return Generate(prompt=prompt, sampling=sampling, **given)


def request(
    seq_id: int, prompt: list[int], sampling: SamplingParams = GREEDY, **fields: Any
) -> Generate:
    return asked(prompt, sampling, **{"seq_id": seq_id, "max_tokens": 40} | fields)


class Run:
    """An engine driven step by step, and its output."""

    def __init__(self, context: Context, masks: MaskCompiler | None = None, **options: Any) -> None:
        self.context = context
        self.engine = Engine(context, masks, **options)
        self.tokens: dict[int, list[int]] = {}
        self.logprobs: dict[int, list[Logprob]] = {}
        self.ends: dict[int, Finished | Failed] = {}

    def add(
        self, seq_id: int, prompt: list[int], sampling: SamplingParams = GREEDY, **fields: Any
    ) -> None:
        """Ask; `fields` are of `Generate`."""
        self.tokens[seq_id], self.logprobs[seq_id] = [], []
        self._take(self.engine.add_request(request(seq_id, prompt, sampling, **fields)))

    def answer(
        self, seq_id: int, prompt: list[int], sampling: SamplingParams = GREEDY, **fields: Any
    ) -> list[int]:
        self.add(seq_id, prompt, sampling, **fields)
        return self.finish()[seq_id]

    def cancel(self, seq_id: int) -> None:
        self._take(self.engine.cancel(seq_id))

    def step(self) -> list[Event]:
        events = self.engine.step()
        self._take(events)
        assert self.engine.check() == []
        return events

    def finish(self, n_steps_max: int = 5000) -> dict[int, list[int]]:
        while self.engine.has_work:
            n_steps_max -= 1
            assert n_steps_max, "the engine makes no progress"
            self.step()
        assert self.engine.stats().n_cells_used == 0
        return self.tokens

    def end(self, seq_id: int) -> Finished:
        end = self.ends[seq_id]
        assert isinstance(end, Finished), end
        return end

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Tokens):
                assert event.seq_id not in self.ends
                self.tokens[event.seq_id] += event.tokens
                self.logprobs[event.seq_id] += event.logprobs
            elif isinstance(event, Finished | Failed) and event.seq_id is not None:
                self.ends[event.seq_id] = event


@contextmanager
def running(
    model: Model,
    masks: MaskCompiler | None = None,
    *,
    n_ctx: int = N_CTX,
    n_seq: int = 8,
    **options: Any,
) -> Iterator[Run]:
    context = make_context(model, n_ctx=n_ctx, n_seq_max=n_seq)
    yield Run(context, masks, **options)
    context.close()
