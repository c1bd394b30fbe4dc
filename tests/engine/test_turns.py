"""Many streams take turns where a step of all is dear, and steps of prompts have the right size."""

import random
from collections import Counter

import pytest

from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Model
from gptoss_local.engine.protocol import StepTimes, Tokens
from gptoss_local.engine.worker.costs import PrefillPace, StepCosts
from tests.engine.run import Run, make_context

# H100, ms: bench/results/row-costs.md
OF_20B = ((1, 3.4), (4, 5.9), (8, 9.7), (9, 15.4), (12, 16.7), (16, 17.3), (32, 22.8))
OF_120B = ((1, 4.9), (4, 8.7), (8, 14.2), (9, 29.1), (12, 34.4), (16, 40.6), (24, 57.6), (32, 65.4))
DEAR_FROM_4 = ((1, 1.0), (2, 1.2), (3, 1.4), (4, 9.0), (8, 10.0))
Streams = tuple[tuple[int, float], ...]


def costs_of(streams: Streams, turn_ms: float) -> StepCosts:
    """Take milliseconds."""
    costs, seconds = StepCosts(), tuple((n, ms / 1e3) for n, ms in streams)
    costs.know(StepTimes(seconds[:1], 0.0, seconds, turn_ms / 1e3))
    return costs


def test_a_step_has_as_many_streams_as_pay() -> None:
    waiting = (1, 8, 9, 10, 12, 16, 24, 32)
    assert [costs_of(OF_20B, 1.6).n_streams(n) for n in waiting] == [1, 8, 8, 8, 8, 16, 24, 32]
    assert [costs_of(OF_120B, 2.0).n_streams(n) for n in waiting] == [1, 8, 8, 8, 8, 8, 8, 8]
    assert costs_of(OF_120B, 20.0).n_streams(32) == 32
    assert StepCosts().n_streams(12) == 12  # unknown costs
    assert costs_of(OF_20B, 1.6).n_streams(40) == 40


def test_a_turn_is_as_long_as_its_start_is_dear() -> None:
    turns_ms = (0.0, 0.5, 1.0, 4.0, 50.0)
    assert [costs_of(OF_120B, turn_ms).n_turn_steps(8) for turn_ms in turns_ms] == [2, 2, 3, 7, 7]
    slow = costs_of(((1, 40.0), (8, 120.0), (16, 400.0)), 50.0)
    assert slow.n_turn_steps(8) == 2


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
            for step_s in (0.011, 0.0095, 0.008):
                costs.observe(group, step_s)
    assert costs.turn_s == pytest.approx(0.0045, rel=0.05)
    assert costs.streams.seconds(8) == pytest.approx(0.008)  # a turn does not teach it
    for _ in range(60):
        costs.observe(groups[0], 0.009)
    assert costs.streams.seconds(8) == pytest.approx(0.009, rel=0.03)


def test_other_sequences_after_a_prompt_are_not_a_turn() -> None:
    """Their graph, and a plan of memory for it, are made again: 35 ms, which no turn takes."""
    costs = costs_of(OF_120B, 2.0)
    for slot in range(50):
        costs.observe((), 1.0)
        costs.observe(tuple((slot + i, 1) for i in range(12)), 0.07)
    assert costs.turn_s == 0.002
    assert costs.n_streams(12) == 8


@pytest.mark.parametrize("streams", [(), OF_20B])
def test_a_draft_teaches_what_a_change_of_width_costs(streams: Streams) -> None:
    """The step after the way back, too, in which CUDA records the graph."""
    costs, usual = StepCosts(), StepTimes(((1, 0.003), (5, 0.006)), 0.0)
    costs.know(StepTimes(usual.seconds, 0.0, tuple((n, ms / 1e3) for n, ms in streams), 0.002))
    for _ in range(60):
        for rows, excess_ms in (((0, 5),), 4), (((0, 1),), 4), (((0, 1),), 3), (((0, 1),), 0):
            n_rows = sum(n for _, n in rows)
            costs.observe(rows, dict(usual.seconds)[n_rows] + excess_ms / 1e3)
    assert costs.switch_s == pytest.approx(0.011, rel=0.3)
    assert costs.turn_s == 0.002


def make_run(model: Model, streams: Streams = (), **sizes: int) -> Run:
    context = make_context(model, **{"n_seq_max": 8} | sizes)
    run = Run(context, step_costs=StepTimes(((1, 1.0),), 0.0, streams))
    run.engine.step_costs.observe = lambda rows, step_s: None  # type: ignore[method-assign]
    return run


@pytest.mark.parametrize("seed", range(2))
def test_turns_change_no_answer_and_are_fair(smooth_model: Model, seed: int) -> None:
    """Streams come and go at random; each is as far as any other that began with it."""
    answers: list[dict[int, list[int]]] = []
    for streams in ((), DEAR_FROM_4):
        rng, run = random.Random(seed), make_run(smooth_model, streams)
        n_asked, n_turns, waits = 0, 0, Counter[int]()
        while run.engine.has_work or n_asked < 12:
            if n_asked < 12 and (not run.engine.has_work or rng.random() < 0.4):
                sampling = SamplingParams(temperature=1, seed=n_asked)
                prompt = [10 * n_asked + i for i in range(4)]
                run.add(n_asked, prompt, sampling, stop_tokens=[], max_tokens=5 + 2 * n_asked)
                n_asked += 1
            events = [event for event in run.step() if isinstance(event, Tokens)]
            n_turns += len(events) == 3 and len(run.engine._scheduler.running) > 3
            waits.update(s.request.seq_id for s in run.engine._scheduler.running)
            waits.update({event.seq_id: -waits[event.seq_id] for event in events})
            assert max(waits.values(), default=0) <= 6, "8 streams of which 3 run, by 2 steps"
        assert (n_turns > 10) == bool(streams)
        answers.append(run.tokens)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("n_first", "others", "n_at_once", "most_steps"),
    [
        (3000, [100], 1, 12),  # 11 steps of 256, and 100 tokens of the other
        (2560, [100] * 6, 2, 11),  # 200 tokens; 256 are a tenth of the long one
        (1000, [600], 0, 4),  # of similar length: in order
    ],
)
def test_short_prompts_overtake_long_ones(
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    n_first: int,
    others: list[int],
    n_at_once: int,
    most_steps: int,
) -> None:
    """They cost a long one a tenth at most."""
    monkeypatch.setattr(PrefillPace, "observe", lambda *_, **__: None)
    run = make_run(model, n_ctx=8192, n_batch=256)
    run.add(0, [5 + i % 900 for i in range(n_first)], stop_tokens=[], max_tokens=1)
    run.step()
    for seq_id, n in enumerate(others, 1):
        run.add(seq_id, [10 * seq_id + i % 7 for i in range(n)], stop_tokens=[], max_tokens=1)
    run.step()
    assert list(run.ends) == list(range(1, 1 + n_at_once))
    n_steps = 1
    while 0 not in run.ends:
        run.step()
        n_steps += 1
    assert n_steps <= most_steps
    run.finish()
    assert list(run.ends)[n_at_once] == 0


def test_pace_finds_the_chunk_that_takes_the_target() -> None:
    pace = PrefillPace(n_max=512, target_s=0.1)
    for _ in range(12):
        pace.observe(pace.n_tokens, step_s=0.02 + pace.n_tokens / 4000)
    assert 0.05 < 0.02 + pace.n_tokens / 4000 < 0.2
    pace.observe(3, step_s=0.05)
    n_tokens = pace.n_tokens
    pace.observe(n_tokens, step_s=60)
    assert pace.n_tokens == n_tokens // 2  # one stall is no new rule
    for step_s, n_tokens in ((60, 32), (0.001, 512)):
        for _ in range(20):
            pace.observe(pace.n_tokens, step_s=step_s)
        assert pace.n_tokens == n_tokens


def test_a_prompt_alone_keeps_its_steps_short(model: Model) -> None:
    """So that a cancel does not wait long; here the whole batch of 512 is too slow."""
    run = Run(make_context(model, n_ctx=2048), prompt_step_s=1e-3)
    run.add(0, [5] * 1500)
    n_prefilled = []
    for _ in range(4):  # the time of a step is known when the next one is launched
        run.step()
        n_prefilled.append(run.engine.stats().n_prefilled)
    assert n_prefilled == [512, 1024, 1280, 1500]
