"""The engine of one context, driven step by step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import (
    N_DRAFT_MAX,
    Event,
    Failed,
    Finished,
    Generate,
    Load,
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


class Run:
    """An engine driven step by step, and its output."""

    def __init__(
        self,
        context: Context,
        masks: MaskCompiler | None = None,
        *,
        backend_sampling: bool = False,
    ) -> None:
        self.context = context
        self.engine = Engine(context, masks, backend_sampling=backend_sampling)
        self.tokens: dict[int, list[int]] = {}
        self.ends: dict[int, Finished | Failed] = {}

    def add(
        self,
        seq_id: int,
        prompt: list[int],
        sampling: SamplingParams = GREEDY,
        *,
        max_tokens: int | None = 40,
        stop: bool = True,
        grammar: str | None = None,
        priority: int = 0,
    ) -> None:
        self.tokens[seq_id] = []
        request = Generate(
            seq_id=seq_id,
            prompt=prompt,
            sampling=sampling,
            stop_tokens=STOP_TOKENS if stop else [],
            max_tokens=max_tokens,
            grammar=grammar,
            priority=priority,
        )
        self._take(self.engine.add_request(request))

    def cancel(self, seq_id: int) -> None:
        self._take(self.engine.cancel(seq_id))

    def step(self) -> None:
        self._take(self.engine.step())
        assert self.engine.check() == []

    def finish(self, n_steps_max: int = 5000) -> dict[int, list[int]]:
        while self.engine.has_work:
            n_steps_max -= 1
            assert n_steps_max, "the engine makes no progress"
            self.step()
        assert self.engine.stats().n_cells_used == 0
        return self.tokens

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Tokens):
                assert event.seq_id not in self.ends
                self.tokens[event.seq_id] += event.tokens
            elif isinstance(event, Finished | Failed) and event.seq_id is not None:
                self.ends[event.seq_id] = event


@contextmanager
def running(
    model: Model,
    masks: MaskCompiler | None = None,
    *,
    n_ctx: int = 4096,
    n_seq: int = 8,
    backend_sampling: bool = False,
) -> Iterator[Run]:
    params = ContextParams(n_ctx=n_ctx, n_threads_prefill=1, n_threads_decode=1, n_seq_max=n_seq)
    context = Context(model, params)
    yield Run(context, masks, backend_sampling=backend_sampling)
    context.close()
