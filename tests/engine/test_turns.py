"""Many streams take turns where a step of all is dear, and short prompts overtake long ones."""

import random
from collections import Counter

import pytest

from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import Generate, StepTimes, Tokens
from gptoss_local.engine.worker.costs import PrefillPace, StepCosts
from gptoss_local.engine.worker.engine import Engine

# H100, ms: bench/results/row-costs.md
OF_20B = ((1, 3.4), (4, 5.9), (8, 9.7), (9, 15.4), (12, 16.7), (16, 17.3), (32, 22.8))
OF_120B = ((1, 4.9), (4, 8.7), (8, 14.2), (9, 29.1), (12, 34.4), (16, 40.6), (24, 57.6), (32, 65.4))
DEAR_FROM_4 = ((1, 1.0), (2, 1.2), (3, 1.4), (4, 9.0), (8, 10.0))


def costs_of(streams: tuple[tuple[int, float], ...], turn_s: float) -> StepCosts:
    costs = StepCosts()
    costs.know(StepTimes(((1, streams[0][1]),), 0.0, streams, turn_s))
    return costs


@pytest.mark.parametrize(
    ("n", "of_20b", "of_120b"),
    [
        (1, 1, 1),
        (8, 8, 8),
        (9, 8, 8),
        (10, 8, 8),
        (12, 12, 8),
        (16, 16, 8),
        (24, 24, 8),
        (32, 32, 32),
    ],
)
def test_a_step_has_as_many_streams_as_pay(n: int, of_20b: int, of_120b: int) -> None:
    assert costs_of(OF_20B, 1.6).n_streams(n) == of_20b
    assert costs_of(OF_120B, 2.0).n_streams(n) == of_120b


def test_streams_of_unknown_cost_run_together() -> None:
    assert StepCosts().n_streams(12) == 12
    assert costs_of(OF_20B, 1.6).n_streams(40) == 40


def test_turns_are_measured_and_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, before = 0.0, (0, 0)

    def decode(first: int, n_rows: int) -> None:
        nonlocal now_s, before
        is_dear = n_rows > 8
        now_s += 0.001 * (n_rows + 8 * is_dear + 2 * (before != (first, n_rows)))
        before = first, n_rows

    monkeypatch.setattr("gptoss_local.engine.worker.costs.time.monotonic", lambda: now_s)
    costs = StepCosts()
    costs.measure_streams(decode, 20)
    assert costs.streams.seconds(20) == pytest.approx(0.028)
    assert costs.turn_s == pytest.approx(0.002)
    groups = [tuple((slot, 1) for slot in range(first, first + 8)) for first in (0, 8)]
    for _ in range(60):
        for group in groups:
            costs.observe(group, 0.011)
    assert costs.turn_s == pytest.approx(0.003, rel=0.05)
    assert costs.streams.seconds(8) == pytest.approx(0.008)  # a turn does not teach it
    for _ in range(60):
        costs.observe(groups[0], 0.009)
    assert costs.streams.seconds(8) == pytest.approx(0.009, rel=0.03)


def test_other_sequences_after_a_prompt_are_not_a_turn() -> None:
    """Their graph, and a plan of memory for it, are made anew: 35 ms, which no turn takes."""
    costs = costs_of(OF_120B, 2.0)
    for slot in range(50):
        costs.observe((), 1.0)
        costs.observe(tuple((slot + i, 1) for i in range(12)), 70.0)
    assert costs.turn_s == 2.0
    assert costs.n_streams(12) == 8


def engine_of(model: Model, streams: tuple[tuple[int, float], ...], **sizes: int) -> Engine:
    params = ContextParams(
        **{"n_ctx": 4096, "n_batch": 512, "n_seq_max": 8} | sizes,  # type: ignore[arg-type]
        n_threads_prefill=2,
        n_threads_decode=1,
    )
    times = StepTimes(((1, 1.0),), 0.0, streams)
    engine = Engine(Context(model, params), step_costs=times)
    engine.step_costs.observe = lambda rows, step_s: None  # type: ignore[method-assign]
    return engine


def ask(engine: Engine, seq_id: int, prompt: list[int], n_tokens: int = 20) -> None:
    sampling = SamplingParams(temperature=1, seed=seq_id)
    request = Generate(
        seq_id=seq_id, prompt=prompt, sampling=sampling, stop_tokens=[], max_tokens=n_tokens
    )
    assert engine.add_request(request) == []


@pytest.mark.parametrize("seed", range(3))
def test_turns_change_no_answer_and_are_fair(smooth_model: Model, seed: int) -> None:
    """Streams come and go at random; each is as far as any other that began with it."""
    answers: list[dict[int, list[int]]] = []
    for streams in ((), DEAR_FROM_4):
        rng, engine = random.Random(seed), engine_of(smooth_model, streams)
        n_asked, found = 0, dict[int, list[int]]()
        n_turns, waits = 0, Counter[int]()
        while engine.has_work or n_asked < 12:
            if n_asked < 12 and (not engine.has_work or rng.random() < 0.4):
                ask(engine, n_asked, [10 * n_asked + i for i in range(4)], 5 + 2 * n_asked)
                n_asked += 1
            events = [event for event in engine.step() if isinstance(event, Tokens)]
            assert engine.check() == []
            n_turns += len(events) == 3 and len(engine._scheduler.running) > 3
            waits.update(s.request.seq_id for s in engine._scheduler.running)
            for event in events:
                found.setdefault(event.seq_id, []).extend(event.tokens)
                waits[event.seq_id] = 0
            assert max(waits.values(), default=0) <= 3, "8 streams of which 3 run: at most 3 steps"
        assert (n_turns > 10) == bool(streams)
        answers.append(found)
    assert answers[0] == answers[1]


class TestShortPrompts:
    @pytest.fixture(autouse=True)
    def steady_pace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PrefillPace, "observe", lambda *_, **__: None)

    def engine(self, model: Model) -> Engine:
        return engine_of(model, (), n_ctx=8192, n_batch=256)

    def steps_to_first_token(self, engine: Engine, *seq_ids: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for n_steps in range(1, 500):
            for event in engine.step():
                if isinstance(event, Tokens):
                    found.setdefault(event.seq_id, n_steps)
            if all(seq_id in found for seq_id in seq_ids):
                return found
        raise AssertionError("no first token")

    def test_a_short_one_does_not_wait_for_a_long_one(self, model: Model) -> None:
        engine = self.engine(model)
        ask(engine, 0, [5 + i % 900 for i in range(3000)], 1)
        engine.step()
        ask(engine, 1, [7] * 100, 1)
        found = self.steps_to_first_token(engine, 0, 1)
        assert found[1] == 1
        assert found[0] <= 12  # 11 steps of 256, and 100 tokens of the other

    def test_short_ones_cost_a_long_one_a_tenth_at_most(self, model: Model) -> None:
        engine = self.engine(model)
        ask(engine, 0, [5 + i % 900 for i in range(2560)], 1)
        engine.step()
        for seq_id in range(1, 7):
            ask(engine, seq_id, [10 + seq_id] * 100, 1)
        found = self.steps_to_first_token(engine, *range(7))
        assert found[1] == found[2] == 1  # 200 tokens; 256 are a tenth
        assert all(found[seq_id] >= found[0] for seq_id in range(3, 7))

    def test_prompts_of_similar_length_come_in_order(self, model: Model) -> None:
        engine = self.engine(model)
        ask(engine, 0, [5 + i % 900 for i in range(1000)], 1)
        ask(engine, 1, [9 + i % 900 for i in range(600)], 1)
        found = self.steps_to_first_token(engine, 0, 1)
        assert found[0] < found[1]
