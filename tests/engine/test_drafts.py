"""Drafts are as long as they pay: they cost an answer at most 2 %, and pay where text repeats.

Steps take as long as on an H100 with 20b (bench/results/row-costs.md), and a change of their width,
which also slows the step after it, takes longer than the engine has measured.
"""

import json
import random
from array import array
from collections.abc import Callable, Collection
from itertools import takewhile
from pathlib import Path

import pytest

from gptoss_local.base.types import StepTimes
from gptoss_local.engine.llama import Sampler
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.engine.worker.costs import WIDTHS, StepCosts, Table
from gptoss_local.engine.worker.drafts import N_GRAM, Drafter, RecentAnswers, Speculation
from gptoss_local.engine.worker.sequence import Sequence
from gptoss_local.harmony import Vocabulary
from tests.engine.run import GREEDY, request

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
MS = ((1, 3.40), (2, 3.91), (3, 4.65), (4, 5.74), (6, 7.49), (7, 8.39), (8, 9.32), (9, 10.6),
      (12, 11.1), (16, 11.7))  # fmt: skip
CHANGE_S, WORST_S = 0.004, 0.008  # of a change of width
RECORD_S = 0.003  # of the step after it, if it is as wide
MEASURED_S = 0.003  # of one and the way back
N_CTX = 16_384
Text = tuple[list[int], list[int]]  # a prompt and an answer


class Machine:
    """Serve answers that are known, one after the other, and count the time of their steps."""

    def __init__(self, change_s: float = CHANGE_S) -> None:
        seconds = tuple((width, ms / 1e3) for width, ms in MS)
        costs = StepCosts()
        costs.know(StepTimes(seconds, MEASURED_S))
        self.speculation = Speculation(N_CTX, N_DRAFT_MAX, costs)
        self.true, self.change_s, self.width, self.n_alike = Table(seconds), change_s, 1, 2

    def answer_s(self, text: Text) -> float:
        prompt, answer = text
        asked = request(0, prompt, stop_tokens=[], max_tokens=len(answer))
        sequence = Sequence(asked, 0, Sampler(GREEDY))
        self.speculation.start(sequence)
        seconds = 0.0
        while left := answer[sequence.n_generated :]:
            draft = self.speculation.drafts([sequence], lambda n: n).get(sequence, [])
            pairs = zip(draft, left, strict=False)
            n_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            tokens, _ = sequence.append(left[: n_right + 1], N_CTX)
            self.speculation.advance(sequence, len(draft), len(tokens) - 1)
            width = 1 + len(draft)
            self.n_alike = self.n_alike + 1 if width == self.width else 0
            self.width = width
            step_s = self.true.seconds(width) + {0: self.change_s, 1: RECORD_S}.get(self.n_alike, 0)
            self.speculation.observe(((0, width),), step_s)
            seconds += step_s
        self.speculation.finish(sequence)
        return seconds


def speeds(texts: list[Text], change_s: float = CHANGE_S) -> list[float]:
    """Return how many times as fast as without drafts each answer is, alone and after others."""
    busy = Machine(change_s)
    return [
        len(text[1]) * MS[0][1] / 1e3 / machine.answer_s(text)
        for text in texts
        for machine in (Machine(change_s), busy)
    ]


def prose(vocabulary: Vocabulary, n: int) -> list[Text]:
    pages = sorted((ROOT / "docs").glob("*.md"), key=lambda path: -path.stat().st_size)[:n]
    tokens = [vocabulary.encode(page.read_text()) for page in pages]
    return [(each[:800], each[800:1200]) for each in tokens]


def trap(seed: int) -> Text:
    """Return a text that repeats the beginnings of phrases, 12 tokens or more, and leaves them."""
    rng = random.Random(seed)
    phrases = [rng.choices(range(1000, 100_000), k=40) for _ in range(12)]
    tokens: list[int] = []
    while len(tokens) < 1000:
        n = min(40, 12 + int(rng.expovariate(1 / 2.5)))
        tokens += [*rng.choice(phrases)[:n], rng.randrange(1000, 100_000)]
    return tokens[:600], tokens[600:1000]


def edits(vocabulary: Vocabulary) -> list[Text]:
    found = []
    for name in ("server/dialects/ollama/request.py", "harmony/render.py", "harmony/session.py"):
        lines = (ROOT / "gptoss_local" / name).read_text().splitlines()[:200]
        changed = list(lines)
        changed[90] = f"    # changed: {changed[90].strip()}"
        ask = "\n".join(lines) + "\n\nComment on line 91 and write the whole file."
        found.append((vocabulary.encode(ask), vocabulary.encode("\n".join(changed))))
    return found


def quotes(vocabulary: Vocabulary) -> list[Text]:
    """Return answers that quote passages of 80 tokens, with words of their own between them."""
    found = []
    for asked, own in zip(prose(vocabulary, 3), prose(vocabulary, 6)[3:], strict=True):
        source, words = asked[0] + asked[1], own[1]
        parts = (words[60 * i : 60 * i + 60] + source[250 * i : 250 * i + 80] for i in range(4))
        found.append((source, [token for part in parts for token in part]))
    return found


def calls(vocabulary: Vocabulary) -> list[Text]:
    """Return calls of a tool with a file in their arguments."""
    found = []
    for prompt, answer in edits(vocabulary)[:2]:
        text = b"".join(vocabulary.bytes_of(token) for token in answer).decode("latin-1")
        found.append((prompt, vocabulary.encode(json.dumps({"path": "file.py", "text": text}))))
    return found


@pytest.mark.parametrize("change_s", [CHANGE_S, WORST_S])
def test_text_that_does_not_repeat_takes_no_longer(vocabulary: Vocabulary, change_s: float) -> None:
    assert min(speeds(prose(vocabulary, 8), change_s)) >= 0.98
    assert min(speeds([trap(seed) for seed in range(8)], change_s)) >= 0.98


def test_text_that_repeats_is_drafted(vocabulary: Vocabulary) -> None:
    """The cost of a change of width is learned: there, back, and the step after that."""
    assert min(speeds(edits(vocabulary))) > 4
    assert min(speeds(quotes(vocabulary))) > 1.4
    assert min(speeds(calls(vocabulary))) > 0.99  # runs of a few tokens, between escapes
    machine = Machine()
    for text in quotes(vocabulary) + calls(vocabulary):
        machine.answer_s(text)
    assert machine.speculation.costs.switch_s == pytest.approx(2 * CHANGE_S + RECORD_S, rel=0.15)


def test_recent_answers_are_a_source_and_are_forgotten() -> None:
    recent = RecentAnswers()
    recent.add(array("i", range(100)))
    drafter = Drafter(array("i", [5000, *range(50, 50 + N_GRAM)]), recent)
    assert drafter.look() == 100 - 50 - N_GRAM
    assert drafter.take(3) == [62, 63, 64]
    for start in range(10_000, 100_000, 10_000):
        recent.add(array("i", range(start, start + 10_000)))
    assert recent.find(array("i", range(50, 50 + N_GRAM))) is None
    assert recent.find(array("i", range(90_000, 90_000 + N_GRAM))) is not None


def test_a_guess_is_promised_by_earlier_ones_alone() -> None:
    tokens = array("i")
    drafter = Drafter(tokens)

    def grow(*more: int) -> float:
        for token in more:
            tokens.append(token)
            drafter.advance(0)
            drafter.take(drafter.look())
        return drafter.acceptance

    assert grow(*range(500, 600)) == 0
    assert grow(*range(500, 500 + N_GRAM)) == 0
    assert drafter.has_guess
    promises = [grow(*range(500 + N_GRAM, 600))]
    assert promises[0] > 0.95
    for other in range(2000, 2004):  # never earlier tokens
        promises.append(grow(*range(500, 500 + N_GRAM), other))
    assert promises == sorted(promises, reverse=True)
    assert promises[-1] < 0.92


def costs_of(**seconds: float) -> StepCosts:
    costs = StepCosts()
    costs.drafts = Table((int(width[1:]), s) for width, s in seconds.items())
    return costs


FLAT = costs_of(w1=1, w2=1.1, w4=1.2, w8=1.3, w16=1.5, w32=2, w64=3)
LINEAR = costs_of(**{f"w{w}": float(w) for w in WIDTHS})
OF_20B = costs_of(w1=1.0, w2=1.1, w4=1.7, w8=2.7, w16=5.0, w32=8.0, w64=12.0)  # H200
DEAR_FROM_9 = costs_of(w1=3.4, w2=3.9, w4=5.7, w8=9.3, w9=14.0, w16=17.0)


@pytest.mark.parametrize(
    ("costs", "n_streams", "acceptance", "n_max", "lengths"),
    [
        (FLAT, 1, 0.98, 63, {47}),
        (FLAT, 1, 0.98, 10, {10}),  # no longer than it may be
        (FLAT, 1, 0.6, 63, range(3, 8)),
        (FLAT, 1, 0.05, 63, {0}),
        (LINEAR, 1, 0.99, 63, {0}),  # each row costs as much as it can give
        (StepCosts(), 1, 0.99, 63, {0}),  # nothing is known
        (OF_20B, 1, 0.97, 63, {8}),
        (OF_20B, 1, 0.995, 63, {63}),
        (OF_20B, 8, 0.6, 63, {0}),  # it must pay for its neighbours
        (DEAR_FROM_9, 1, 0.95, 15, {7}),  # it stops where a row gets dear,
        (DEAR_FROM_9, 1, 0.99, 15, {15}),  # unless the whole still pays
    ],
)
def test_drafts_are_as_long_as_they_pay(
    costs: StepCosts, n_streams: int, acceptance: float, n_max: int, lengths: Collection[int]
) -> None:
    assert costs.draft_length(n_streams, acceptance, n_max) in lengths


def measured(
    monkeypatch: pytest.MonkeyPatch, step_s: Callable[[int, int], float], n_max: int
) -> StepCosts:
    """Return the costs on a machine with such steps, by their width and the last one."""
    now_s, before = 0.0, 1

    def decode(n_rows: int) -> None:
        nonlocal now_s, before
        now_s, before = now_s + step_s(n_rows, before), n_rows

    monkeypatch.setattr("gptoss_local.engine.worker.costs.time.monotonic", lambda: now_s)
    costs = StepCosts()
    costs.measure_drafts(decode, n_max)
    assert now_s < 3, "a slow machine measures fewer widths"
    return costs


def test_costs_are_measured_and_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = measured(monkeypatch, lambda n_rows, _: 0.001 * (10 + n_rows), 33)
    assert costs.drafts.seconds(1) == pytest.approx(0.011)
    assert costs.drafts.seconds(24) == pytest.approx(0.034)
    assert costs.drafts.seconds(40) == float("inf")  # never tried
    for _ in range(100):
        costs.observe(((0, 1),), 0.02)
    assert costs.drafts.seconds(1) == pytest.approx(0.02, rel=0.03)
    costs.observe(((0, 1),), 10.0)  # a stall
    assert costs.drafts.seconds(1) < 0.023
    slow = measured(monkeypatch, lambda n_rows, _: 0.05 + 0.05 * n_rows, 64)
    assert slow.drafts.seconds(8) == pytest.approx(0.45)
    assert slow.drafts.seconds(64) == float("inf")


def test_a_run_of_drafts_must_pay_for_the_change_of_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def step_s(n_rows: int, before: int) -> float:
        return 0.001 * (3 + 0.1 * n_rows + 5 * (n_rows != before))

    costs = measured(monkeypatch, step_s, 16)
    assert costs.drafts.seconds(8) == pytest.approx(0.0038)
    assert costs.draft_length(1, 0.7, 15) == 0  # 3.3 tokens in 4.6 + 10 ms
    assert costs.draft_length(1, 0.97, 15) == 15
    costs.observe(((0, 16),), 0.0096)  # teaches nothing: it was a switch
    assert costs.drafts.seconds(16) == pytest.approx(0.0046)
    assert costs.draft_length(1, 0.7, 15) > 0
    costs.observe(((0, 1),), 0.0081)
    assert costs.draft_length(1, 0.7, 15) == 0


def test_the_first_step_of_a_width_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set[int]()

    def step_s(n_rows: int, _: int) -> float:
        is_new = n_rows not in seen
        seen.add(n_rows)
        return 0.003 + 0.08 * is_new

    costs = measured(monkeypatch, step_s, 16)
    assert [s for _, s in costs.drafts.items()] == pytest.approx([0.003] * 10)
    assert costs.switch_s == pytest.approx(0)
