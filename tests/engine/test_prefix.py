"""Prefix reuse: whatever is reused, logits are those of a context that prefills everything.

The random conversations run some dozens of examples by default; for hundreds, and other ones:

    PREFIX_EXAMPLES=500 pytest tests/engine/test_prefix.py -k random
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import gptoss_local.engine.engine as engine_module
from gptoss_local.engine import prefix_cache
from gptoss_local.engine.draw import draw
from gptoss_local.engine.engine import Engine
from gptoss_local.engine.protocol import Event, Failed, Finished, Generate, Prefetch, Tokens
from gptoss_local.engine.sequence import Sequence
from gptoss_local.llama import Context, ContextParams, Model
from gptoss_local.types import SamplingParams
from tests.engine.smooth_model import N_VOCAB, N_WINDOW, TOLERANCE, write_smooth_model

N_EXAMPLES = int(os.environ.get("PREFIX_EXAMPLES", "0"))
END, CALL = 1, 2
Logits = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("smooth") / "smooth.gguf"
    write_smooth_model(path)
    model = Model(path)
    yield model
    model.close()


@pytest.fixture(autouse=True)
def _short_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "_CHECKPOINT_EVERY", 100)
    monkeypatch.setattr(prefix_cache, "_WORTH_REUSING", 4)


def make_context(model: Model, n_ctx: int, n_seq: int, n_ubatch: int = 64) -> Context:
    params = ContextParams(
        n_ctx=n_ctx,
        n_threads_prefill=1,
        n_threads_decode=1,
        n_batch=64,
        n_ubatch=n_ubatch,
        n_seq_max=n_seq,
        n_outputs_max=64,
        type_k="bf16",
        type_v="bf16",
    )
    return Context(model, params)


def read_logits(context: Context, row: int) -> Logits:
    pointer = llama_cpp.llama_get_logits_ith(context.handle, row)
    return np.ctypeslib.as_array(pointer, (N_VOCAB,)).copy()


class Reference:
    """Logits of whole prompts, prefilled into an empty cache that forgets nothing."""

    def __init__(self, model: Model) -> None:
        self._context = make_context(model, 1024, 1)

    def logits(self, tokens: list[int], n_prompt: int) -> list[Logits]:
        """Those behind the prompt and behind each further token."""
        self._context.remove(0)
        found = []
        for start in range(0, len(tokens), 32):
            chunk = tokens[start : start + 32]
            batch = engine_module.Batch(32)
            batch.extend(chunk, start, 0, n_outputs=len(chunk))
            self._context.decode_batch(batch)
            rows = range(max(0, n_prompt - 1 - start), len(chunk))
            found += [read_logits(self._context, row) for row in rows]
        return found


@dataclass
class Asked:
    prompt: list[int]
    answer: list[int] = field(default_factory=list)
    logits: list[Logits] = field(default_factory=list)
    end: Finished | Failed | None = None

    @property
    def n_cached(self) -> int:
        assert isinstance(self.end, Finished)
        return self.end.usage.n_cached


class Run:
    """An engine whose logits are kept, and everything it was asked."""

    def __init__(
        self,
        model: Model,
        monkeypatch: pytest.MonkeyPatch,
        *,
        checkpoint_bytes: int = 2**20,
        **sizes: int,
    ) -> None:
        self.context = make_context(model, **{"n_ctx": 512, "n_seq": 3} | sizes)
        self.engine = Engine(
            self.context, checkpoint_bytes=checkpoint_bytes, boundary_tokens=(END, CALL)
        )
        self.asked: list[Asked] = []
        self.model = model
        monkeypatch.setattr(engine_module, "draw", self._draw)

    def ask(self, prompt: list[int], n_answer: int = 4) -> Asked:
        request = Generate(
            seq_id=len(self.asked),
            prompt=prompt,
            sampling=SamplingParams(temperature=0),
            stop_tokens=[],
            max_tokens=n_answer,
        )
        self.asked.append(Asked(prompt))
        self._take(self.engine.add_request(request))
        return self.asked[-1]

    def answer(self, prompt: list[int], n_answer: int = 4) -> Asked:
        asked = self.ask(prompt, n_answer)
        self.finish()
        return asked

    def prefetch(self, tokens: list[int], lineage: str = "x") -> None:
        self.engine.prefetch(Prefetch(lineage, tokens))

    def step(self) -> None:
        self._take(self.engine.step())
        assert self.engine.check() == []

    def finish(self) -> None:
        n_steps = 0
        while self.engine.has_work:
            n_steps += 1
            assert n_steps < 3000, "the engine makes no progress"
            self.step()

    def errors(self) -> list[float]:
        """How far each request's logits are from the reference's, at most."""
        reference = Reference(self.model)
        found = []
        for asked in self.asked:
            assert not isinstance(asked.end, Failed)
            tokens = asked.prompt + asked.answer[:-1]
            wanted = reference.logits(tokens, len(asked.prompt))
            pairs = list(zip(wanted, asked.logits, strict=False))
            found.append(max((float(abs(a - b).max()) for a, b in pairs), default=0.0))
            for logits, token in zip(wanted, asked.answer, strict=False):
                if found[-1] <= TOLERANCE:  # or else the token may be another one
                    assert logits[token] >= logits.max() - 2 * TOLERANCE
        return found

    def close(self) -> None:
        self.context.close()

    def _draw(self, sequence: Sequence, context: Context, row: int) -> list[int]:
        self.asked[sequence.request.seq_id].logits.append(read_logits(context, row))
        return draw(sequence, context, row)

    def _take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Tokens(seq_id, tokens):
                    self.asked[seq_id].answer += tokens
                case Finished(seq_id) as end:
                    self.asked[seq_id].end = end
                case Failed(seq_id=int(seq_id)) as end:
                    self.asked[seq_id].end = end


@pytest.fixture
def start(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    runs = []

    def make(**sizes: Any) -> Run:
        runs.append(Run(model, monkeypatch, **sizes))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


def text(seed: int, n_tokens: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(10, N_VOCAB, n_tokens)]


# Random conversations.

SYSTEMS = [[*text(1, 50), END], [*text(2, 20), END]]


class Chatter:
    """Random clients of one engine: they ask, go on, edit, branch, use tools, prefetch, leave."""

    def __init__(self, run: Run, draw_: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._run = run
        self._draw = draw_
        self._n_texts = 100

    def act(self) -> None:
        asked = [a for a in self._run.asked if a.answer or a.end]
        actions = [self._begin]
        if asked:
            actions += [
                self._go_on,
                self._go_on,
                self._use_tool,
                self._edit,
                self._cut,
                self._again,
            ]
            actions += [self._prefetch, self._cancel]
        self._draw(st.sampled_from(actions))()
        for _ in range(self._draw(st.integers(0, 25))):
            if self._run.engine.has_work:
                self._run.step()

    def _int(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))

    def _some(self) -> Asked:
        asked = [a for a in self._run.asked if a.answer or a.end]
        return asked[-1 - min(self._int(0, 4), len(asked) - 1)]

    def _message(self, n_max: int = 60) -> list[int]:
        self._n_texts += 1
        return [*text(self._n_texts, self._int(1, n_max)), END]

    def _ask(self, prompt: list[int]) -> None:
        if len(prompt) < self._run.context.n_ctx:
            self._run.ask(prompt, self._int(1, 8) if self._int(0, 3) else self._int(40, 150))

    def _begin(self) -> None:
        n_max = 60 if self._int(0, 3) else 250
        self._ask(SYSTEMS[self._int(0, 1)] + self._message(n_max))

    def _history(self) -> list[int]:
        """A turn that is over: without the analysis that the answer began with."""
        asked = self._some()
        return asked.prompt + asked.answer[self._int(0, len(asked.answer)) :] + [END]

    def _go_on(self) -> None:
        self._ask(self._history() + self._message())

    def _use_tool(self) -> None:
        asked = self._some()
        self._ask(asked.prompt + asked.answer + [CALL] + self._message())

    def _edit(self) -> None:
        prompt = self._some().prompt
        ends = [i + 1 for i, token in enumerate(prompt) if token == END]
        self._ask(prompt[: ends[self._int(0, len(ends) - 1)]] + self._message())

    def _cut(self) -> None:
        prompt = self._some().prompt
        self._ask(prompt[: self._int(1, len(prompt))] + self._message(3))

    def _again(self) -> None:
        self._ask(self._some().prompt)

    def _prefetch(self) -> None:
        self._run.prefetch(self._history(), lineage=str(self._int(0, 2)))

    def _cancel(self) -> None:
        seq_id = len(self._run.asked) - 1 - self._int(0, min(3, len(self._run.asked) - 1))
        self._run._take(self._run.engine.cancel(seq_id))


def random_conversations(
    start: Callable[..., Run], n_examples: int, *, seed_by_source: bool = True
) -> tuple[Counter[str], float]:
    """What was done in all, and the largest error."""
    done: Counter[str] = Counter()
    worst = [0.0]

    @settings(
        max_examples=n_examples,
        deadline=None,
        derandomize=seed_by_source,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def converse(data: st.DataObject) -> None:
        n_seq = data.draw(st.sampled_from([1, 2, 3, 4]))
        n_ctx = data.draw(st.sampled_from([256, 512, 768]))
        n_ubatch = data.draw(st.sampled_from([64, 32]))
        n_checkpoints = data.draw(st.sampled_from([0, 3, 40]))
        run = start(
            n_ctx=n_ctx, n_seq=n_seq, n_ubatch=n_ubatch, checkpoint_bytes=n_checkpoints * 18_000
        )
        chatter = Chatter(run, data.draw)
        for _ in range(data.draw(st.integers(6, 16))):
            chatter.act()
        run.finish()
        error = max(run.errors(), default=0.0)
        worst[0] = max(worst[0], error)
        stats = run.engine.stats()
        done.update(
            requests=len(run.asked),
            cached=stats.n_cached_tokens,
            evicted=stats.n_evicted,
            checkpoints=stats.n_checkpoints,
            preempted=stats.n_preempted,
            prefetched=stats.n_prefetched,
        )
        run.close()

    converse()
    return done, worst[0]


def test_random_conversations_have_the_logits_of_a_full_prefill(start: Callable[..., Run]) -> None:
    done, worst = random_conversations(start, N_EXAMPLES or 40, seed_by_source=not N_EXAMPLES)
    print(dict(done), f"largest error {worst:.1e}")
    assert worst <= TOLERANCE
    assert min(done.values()) > 0, done


@pytest.mark.parametrize("n_missing", [1, 1000])
def test_a_rule_that_is_too_lax_is_noticed(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, n_missing: int
) -> None:
    """As if a sequence could go on with so many positions of its window missing."""

    def can_resume(self: Context, seq_id: int, position: int) -> bool:
        first, last = self.positions(seq_id)
        return position - 1 <= last and first <= max(0, position - N_WINDOW + 1 + n_missing)

    monkeypatch.setattr(Context, "can_resume", can_resume)
    assert random_conversations(start, 15)[1] > 1.5 * TOLERANCE
