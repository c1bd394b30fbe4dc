"""Drafts are found where words stood before, and drafted as far as it pays."""

import random
from array import array

import pytest

from gptoss_local.engine.worker.costs import WIDTHS, StepCosts, Table
from gptoss_local.engine.worker.drafts.draft import N_GRAM, N_RESUME, Drafter, RecentAnswers

pytestmark = pytest.mark.quick


def numbers(start: int, end: int) -> "array[int]":
    return array("i", range(start, end))


def grow(drafter: Drafter, tokens: "array[int]", token: int) -> list[int]:
    """Append a token; return the draft behind it."""
    tokens.append(token)
    drafter.advance(0)
    return drafter.take(drafter.look())


def test_the_last_continuation_is_drafted() -> None:
    tokens = array("i", [1, 2, *range(100, 140), 3, 4, *range(100, 150), 5])
    drafter = Drafter(tokens)
    assert drafter.look() == 0
    for token in range(100, 100 + N_GRAM - 1):
        assert grow(drafter, tokens, token) == []
    expected = [*range(100 + N_GRAM, 150), 5, *range(100, 100 + N_GRAM)]
    assert grow(drafter, tokens, 100 + N_GRAM - 1) == expected  # of the later occurrence


def test_a_run_that_overlaps_itself_is_found() -> None:
    tokens = array("i", [7] * (N_GRAM + 3))
    drafter = Drafter(tokens)
    assert drafter.look() > 0
    assert set(drafter.take(9)) == {7}


def test_copying_resumes_behind_an_edit() -> None:
    original = random.Random(0).sample(range(1000), 200)
    tokens = array("i", [*original, 2000, *original[:50]])
    drafter = Drafter(tokens)
    assert drafter.look() == 201 - 50 + 50
    assert grow(drafter, tokens, 3000) == []  # one token is replaced …
    for token in original[51 : 51 + N_RESUME - 1]:
        assert grow(drafter, tokens, token) == []
    resumed = grow(drafter, tokens, original[50 + N_RESUME])  # … and after a few the copy goes on
    assert resumed[:100] == original[51 + N_RESUME : 151 + N_RESUME]


def test_accepted_tokens_move_the_draft_on() -> None:
    tokens = array("i", [*range(300), *range(20)])
    drafter = Drafter(tokens)
    drafter.look()
    assert drafter.take(5) == [20, 21, 22, 23, 24]
    tokens.extend([20, 21, 22, 23])
    drafter.advance(3)
    drafter.look()
    assert drafter.take(2) == [24, 25]


def test_recent_answers_are_a_source_and_are_forgotten() -> None:
    recent = RecentAnswers()
    recent.add(numbers(0, 100))
    drafter = Drafter(array("i", [5000, *range(50, 50 + N_GRAM)]), recent)
    assert drafter.look() == 100 - 50 - N_GRAM
    assert drafter.take(3) == [62, 63, 64]
    for start in range(10_000, 100_000, 10_000):
        recent.add(numbers(start, start + 10_000))
    assert recent.find(numbers(50, 50 + N_GRAM)) is None
    assert recent.find(numbers(90_000, 90_000 + N_GRAM)) is not None


def test_a_guess_is_promised_by_earlier_ones_alone() -> None:
    tokens = array("i")
    drafter = Drafter(tokens)
    for token in (*range(500, 600), *range(500, 500 + N_GRAM)):
        assert drafter.acceptance == 0
        grow(drafter, tokens, token)
    assert drafter.has_guess
    for token in range(500 + N_GRAM, 600):
        grow(drafter, tokens, token)
    assert drafter.acceptance > 0.95
    promises = [drafter.acceptance]
    for other in range(2000, 2004):  # never what came before
        for token in (*range(500, 500 + N_GRAM), other):
            grow(drafter, tokens, token)
        promises.append(drafter.acceptance)
    assert promises == sorted(promises, reverse=True)
    assert promises[-1] < 0.92


def costs_of(**seconds: float) -> StepCosts:
    costs = StepCosts()
    costs.drafts = Table((int(width[1:]), s) for width, s in seconds.items())
    return costs


def test_drafts_are_as_long_as_they_pay() -> None:
    flat = costs_of(w1=1, w2=1.1, w4=1.2, w8=1.3, w16=1.5, w32=2, w64=3)
    linear = costs_of(**{f"w{w}": float(w) for w in WIDTHS})
    assert flat.draft_length(1, 0.98, 63) == 47
    assert flat.draft_length(1, 0.98, 10) == 10  # no longer than it may be
    assert 3 <= flat.draft_length(1, 0.6, 63) <= 7
    assert flat.draft_length(1, 0.05, 63) == 0
    assert linear.draft_length(1, 0.99, 63) == 0  # each row costs as much as it can give
    assert StepCosts().draft_length(1, 0.99, 63) == 0  # nothing is known


def test_a_draft_must_pay_for_its_neighbours() -> None:
    costs = costs_of(w1=1.0, w2=1.1, w4=1.7, w8=2.7, w16=5.0, w32=8.0, w64=12.0)  # H200, 20b
    assert costs.draft_length(1, 0.97, 63) == 8
    assert costs.draft_length(1, 0.995, 63) == 63
    assert costs.draft_length(8, 0.6, 63) == 0


def test_a_draft_stops_where_a_row_gets_dear_unless_the_whole_still_pays() -> None:
    costs = costs_of(w1=3.4, w2=3.9, w4=5.7, w8=9.3, w9=14.0, w16=17.0)
    assert costs.draft_length(1, 0.95, 15) == 7
    assert costs.draft_length(1, 0.99, 15) == 15


def test_costs_are_measured_and_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def decode(n_rows: int) -> None:
        nonlocal now_s
        now_s += 0.001 * (10 + n_rows)

    monkeypatch.setattr("gptoss_local.engine.worker.costs.time.monotonic", lambda: now_s)
    costs = StepCosts()
    costs.measure_drafts(decode, 33)
    assert costs.drafts.seconds(1) == pytest.approx(0.011)
    assert costs.drafts.seconds(24) == pytest.approx(0.034)
    assert costs.drafts.seconds(40) == float("inf")  # never tried
    for _ in range(100):
        costs.observe(((0, 1),), 0.02)
    assert costs.drafts.seconds(1) == pytest.approx(0.02, rel=0.03)
    costs.observe(((0, 1),), 10.0)  # a stall
    assert costs.drafts.seconds(1) < 0.023


def test_a_run_of_drafts_must_pay_for_the_change_of_width(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, before = 0.0, 1

    def decode(n_rows: int) -> None:
        nonlocal now_s, before
        now_s += 0.001 * (3 + 0.1 * n_rows + 5 * (n_rows != before))
        before = n_rows

    monkeypatch.setattr("gptoss_local.engine.worker.costs.time.monotonic", lambda: now_s)
    costs = StepCosts()
    costs.measure_drafts(decode, 16)
    assert costs.drafts.seconds(8) == pytest.approx(0.0038)
    assert costs.draft_length(1, 0.7, 15) == 0  # 3.3 tokens in 4.6 + 10 ms
    assert costs.draft_length(1, 0.97, 15) == 15
    costs.observe(((0, 16),), 0.0096)  # teaches nothing: it was a switch
    assert costs.drafts.seconds(16) == pytest.approx(0.0046)
    assert costs.draft_length(1, 0.7, 15) > 0
    costs.observe(((0, 1),), 0.0081)
    assert costs.draft_length(1, 0.7, 15) == 0


def test_the_first_step_of_a_width_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, seen = 0.0, set[int]()

    def decode(n_rows: int) -> None:
        nonlocal now_s
        now_s += 0.003 + (0.08 if n_rows not in seen else 0)
        seen.add(n_rows)

    monkeypatch.setattr("gptoss_local.engine.worker.costs.time.monotonic", lambda: now_s)
    costs = StepCosts()
    costs.measure_drafts(decode, 16)
    assert [s for _, s in costs.drafts.items()] == pytest.approx([0.003] * 10)
    assert costs.switch_s == pytest.approx(0)


def test_a_slow_machine_measures_fewer_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def decode(n_rows: int) -> None:
        nonlocal now_s
        now_s += 0.05 + 0.05 * n_rows

    monkeypatch.setattr("gptoss_local.engine.worker.costs.time.monotonic", lambda: now_s)
    costs = StepCosts()
    costs.measure_drafts(decode, 64)
    assert now_s < 3
    assert costs.drafts.seconds(8) == pytest.approx(0.45)
    assert costs.drafts.seconds(64) == float("inf")
    assert costs.draft_length(1, 0.99, 63) in (7, 8, 11, 15)
