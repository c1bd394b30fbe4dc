"""Measures a GGUF on held-out questions: `python -m bench.nano.evaluate GGUF --n 200`.

An answer is right if all of it is: channel, recipient, content and stop token. Prints a table; with
`--json` also writes it, together with a few failures of every skill.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.nano.answering import Answerer, Question
from bench.nano.data.document import (
    Branch,
    BranchTokens,
    encode_document,
)
from bench.nano.data.mixture import EVAL_SKILLS, eval_documents
from bench.nano.judge import is_right, n_analysis_tokens, parse
from gptoss_local.harmony import load_vocabulary
from gptoss_local.models.nano.compact import CompactModel, load_compact
from gptoss_local.types import SamplingParams

N_CTX = 49_152
N_SPARE_TOKENS = 64  # an answer may be so much longer than the wanted one
N_FAILURES = 12  # kept per skill
PROMPT_TAIL = 600  # characters of the prompt shown with a failure
EFFORTS = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Options:
    """What every process has to know."""

    gguf: Path
    n: int
    temperature: float
    n_threads: int
    used_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer. `n_stray` counts tokens that are neither used ones nor in the prompt."""

    stage: str
    effort: str
    right: bool
    exact: bool
    parseable: bool
    n_emitted: int
    n_stray: int
    n_analysis: int | None
    failure: dict[str, str] | None


class Worker:
    """One process and its model."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.answerer = Answerer(options.gguf, n_ctx=N_CTX, n_threads=options.n_threads)

    def measure(self, skill: str) -> Iterator[Outcome]:
        """Answer the first `n` questions of a skill."""
        n_done = 0
        for document in eval_documents(skill):
            context, branches = encode_document(document)
            branches = branches[: self.options.n - n_done]
            questions = [self._question(b, seed=n_done + i) for i, b in enumerate(branches)]
            self.answerer.read(context)
            answers = self.answerer.answer(questions)
            n_done += len(branches)
            for branch, tokens, got in zip(document.branches, branches, answers, strict=False):
                yield self._judge(document.effort, branch, context, tokens, got)
            if n_done == self.options.n:
                return

    def _question(self, tokens: BranchTokens, *, seed: int) -> Question:
        sampling = SamplingParams(temperature=self.options.temperature, seed=seed)
        return Question(tokens.prompt, len(tokens.target) + N_SPARE_TOKENS, sampling)

    def _judge(
        self, effort: str, branch: Branch, context: list[int], tokens: BranchTokens, got: list[int]
    ) -> Outcome:
        reply = parse(got, opens_final=branch.opens_final)
        right = is_right(reply, branch)
        known = self.options.used_ids.union(context, tokens.prompt)
        return Outcome(
            stage=branch.skill,
            effort=effort,
            right=right,
            exact=got == tokens.target,
            parseable=reply is not None,
            n_emitted=len(got),
            n_stray=sum(token not in known for token in got),
            n_analysis=None if branch.opens_final else n_analysis_tokens(got),
            failure=None if right else _failure(context + tokens.prompt, got, tokens.target),
        )


def _failure(prompt: list[int], got: list[int], want: list[int]) -> dict[str, str]:
    decode = load_vocabulary().encoding.decode
    return {"prompt": decode(prompt[-PROMPT_TAIL:])[-PROMPT_TAIL:], "got": decode(got),
            "want": decode(want)}  # fmt: skip


_worker: Worker | None = None


def _start_worker(options: Options) -> None:
    global _worker
    _worker = Worker(options)


def _measure(skill: str) -> tuple[str, list[Outcome], float]:
    assert _worker is not None
    started = time.monotonic()
    return skill, list(_worker.measure(skill)), time.monotonic() - started


def measure(
    skills: Sequence[str], options: Options, n_jobs: int
) -> Iterator[tuple[str, list[Outcome]]]:
    """Measure all skills, several at a time; the last, which have long prompts, start first."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(n_jobs, _start_worker, (options,)) as pool:
        for skill, outcomes, seconds in pool.imap_unordered(_measure, reversed(skills)):
            n_right = sum(o.right for o in outcomes)
            line = f"{skill}: {n_right}/{len(outcomes)}, {seconds:.0f} s"
            print(line, file=sys.stderr, flush=True)
            yield skill, outcomes


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Count; the analysis is the mean length in tokens by effort."""
    lengths = {
        effort: [o.n_analysis for o in outcomes if o.effort == effort and o.n_analysis is not None]
        for effort in EFFORTS
    }
    return {
        "n": len(outcomes),
        "right": sum(o.right for o in outcomes),
        "exact": sum(o.exact for o in outcomes),
        "parseable": sum(o.parseable for o in outcomes),
        "emitted": sum(o.n_emitted for o in outcomes),
        "stray": sum(o.n_stray for o in outcomes),
        "analysis": {e: round(sum(v) / len(v), 1) for e, v in lengths.items() if v},
    }


def report(found: dict[str, list[Outcome]]) -> dict[str, dict[str, Any]]:
    """Summarise every skill, its stages where it has several, and all together."""
    rows: dict[str, dict[str, Any]] = {}
    for skill, outcomes in found.items():
        failures = [o.failure for o in outcomes if o.failure is not None][:N_FAILURES]
        rows[skill] = summary(outcomes) | {"failures": failures}
        stages = sorted({o.stage for o in outcomes})
        if len(stages) > 1:
            for stage in stages:
                rows[f"{skill} / {stage}"] = summary([o for o in outcomes if o.stage == stage])
    rows["total"] = summary([o for outcomes in found.values() for o in outcomes])
    return rows


def table(rows: dict[str, dict[str, Any]]) -> Iterable[str]:
    width = max(map(len, rows))
    yield f"{'skill':{width}}     n  right  exact  parse  stray  analysis {'/'.join(EFFORTS)}"
    for name, row in rows.items():
        shares = "".join(f"{row[key] / row['n']:7.3f}" for key in ("right", "exact", "parseable"))
        lengths = " / ".join(str(row["analysis"].get(effort, "-")) for effort in EFFORTS)
        yield f"{name:{width}} {row['n']:5}{shares}{row['stray']:7}  {lengths}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--n", type=int, default=200, help="questions per skill")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--skills", help="separated by commas; all if left out")
    parser.add_argument("--weights", type=Path, help="the GGUF's nano.xz, for its used tokens")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    skills = args.skills.split(",") if args.skills else EVAL_SKILLS
    weights = CompactModel(args.weights.read_bytes()) if args.weights else load_compact()
    n_threads = max(1, (os.cpu_count() or 1) // args.jobs)
    used_ids = frozenset(weights.used_ids.tolist())
    options = Options(args.gguf, args.n, args.temperature, n_threads, used_ids)
    found: dict[str, list[Outcome]] = {}
    for skill, outcomes in measure(skills, options, args.jobs):
        found[skill] = outcomes
        rows = report({skill: found[skill] for skill in skills if skill in found})
        if args.json:  # so far, should the rest be interrupted
            args.json.write_text(json.dumps(rows, ensure_ascii=False, indent=1))
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
