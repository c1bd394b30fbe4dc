"""Drafts cost an answer at most 2 %, and pay where text repeats.

Steps take as long as on an H100 with 20b (bench/results/row-costs.md), and a change of their width,
which also slows the step after it, takes longer than the engine has measured.
"""

import json
import random
from itertools import takewhile
from pathlib import Path

import pytest

from gptoss_local.base.types import SamplingParams, StepTimes
from gptoss_local.engine.llama import Sampler
from gptoss_local.engine.protocol import N_DRAFT_MAX, Generate
from gptoss_local.engine.worker.costs import StepCosts, Table
from gptoss_local.engine.worker.drafts.speculation import Speculation
from gptoss_local.engine.worker.sequence import Sequence
from gptoss_local.harmony import Vocabulary

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
        sampling = SamplingParams(temperature=0)
        request = Generate(
            seq_id=0, prompt=prompt, sampling=sampling, stop_tokens=[], max_tokens=len(answer)
        )
        sequence = Sequence(request, 0, Sampler(sampling))
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


def trap(seed: int, n_least: int = 12, n_more: float = 2.5) -> Text:
    """Return a text that repeats the beginnings of phrases, and then leaves them.

    A beginning has `n_least` tokens and about `n_more` more.
    """
    rng = random.Random(seed)
    phrases = [rng.choices(range(1000, 100_000), k=40) for _ in range(12)]
    tokens: list[int] = []
    while len(tokens) < 1000:
        n = min(40, n_least + int(rng.expovariate(1 / n_more)))
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
        answer = [
            token
            for i in range(4)
            for token in (*words[60 * i : 60 * i + 60], *source[250 * i : 250 * i + 80])
        ]
        found.append((source, answer))
    return found


def calls(vocabulary: Vocabulary) -> list[Text]:
    """Return calls of a tool with a file in their arguments."""
    found = []
    for prompt, answer in edits(vocabulary)[:2]:
        arguments = json.dumps(
            {
                "path": "file.py",
                "text": "".join(map(chr, b"".join(vocabulary.bytes_of(token) for token in answer))),
            }
        )
        found.append((prompt, vocabulary.encode(arguments)))
    return found


@pytest.mark.parametrize("change_s", [CHANGE_S, WORST_S])
def test_text_that_does_not_repeat_takes_no_longer(vocabulary: Vocabulary, change_s: float) -> None:
    assert min(speeds(prose(vocabulary, 8), change_s)) >= 0.98
    assert min(speeds([trap(seed) for seed in range(8)], change_s)) >= 0.98


def test_text_that_repeats_is_drafted(vocabulary: Vocabulary) -> None:
    assert min(speeds(edits(vocabulary))) > 4
    assert min(speeds(quotes(vocabulary))) > 1.4
    assert min(speeds(calls(vocabulary))) > 0.99  # runs of a few tokens, between escapes


def test_the_cost_of_a_change_of_width_is_learned(vocabulary: Vocabulary) -> None:
    """There, back, and the step after that."""
    machine = Machine()
    for text in quotes(vocabulary) + calls(vocabulary):
        machine.answer_s(text)
    assert machine.speculation.costs.switch_s == pytest.approx(2 * CHANGE_S + RECORD_S, rel=0.15)
