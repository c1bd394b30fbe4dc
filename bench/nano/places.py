"""Tell which tokens of an answer a GGUF misses.

    python -m bench.nano.places GGUF --skills rename

Each held-out answer is given up to each of its tokens, so that a miss hides none behind it: where
answers are long, that is far more evidence in the same time than whole answers are (`evaluate`).
Turns (`train.turns`) and what is copied are counted apart. A miss is not always wrong: a word can
often be spelled in several ways.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.nano.answering import Answerer
from bench.nano.data.document import encode_document
from bench.nano.data.mixture import eval_documents
from bench.nano.evaluate import N_CTX
from bench.nano.train.turns import branch_turns, followers
from gptoss_local.harmony import load_vocabulary

N_SHOWN = 8  # tokens before a miss


@dataclass(frozen=True, slots=True)
class Miss:
    """A token that is not the likeliest one where it stands, and what the model had said."""

    is_turn: bool
    before: str
    wanted: str
    got: str


Judged = tuple[list[bool], list[Miss]]
"""Of one answer: which of its tokens are turns, and what is missed of all."""


def measure(model: Answerer, skill: str, n: int) -> Iterator[Judged]:
    """The first `n` answers of a skill."""
    n_left = n
    for document in eval_documents(skill):
        context, branches = encode_document(document)
        read = followers(context)
        model.read(context)
        for branch in branches[:n_left]:
            got = model.likeliest(branch.prompt, branch.target)
            is_turn = branch_turns(context, branch, read).tolist()
            yield is_turn, list(misses(branch.target, got, is_turn))
        n_left -= len(branches)
        if n_left <= 0:
            return


def describe(answers: Sequence[Judged]) -> str:
    """Count turns, other tokens and answers, and of each what is missed."""
    turns = [turn for is_turn, _ in answers for turn in is_turn]
    missed = [miss.is_turn for _, found in answers for miss in found]
    return (
        f"{sum(missed)} of {sum(turns)} turns missed, "
        f"{len(missed) - sum(missed)} of {len(turns) - sum(turns)} other tokens; "
        f"{sum(bool(found) for _, found in answers)} of {len(answers)} answers miss any"
    )


def misses(target: Sequence[int], got: Sequence[int], is_turn: Sequence[bool]) -> Iterator[Miss]:
    """Where `got` is another token than `target`."""
    decode = load_vocabulary().encoding.decode
    for i, (wanted, token, turn) in enumerate(zip(target, got, is_turn, strict=True)):
        if wanted != token:
            before = decode(list(target[max(0, i - N_SHOWN) : i]))
            yield Miss(turn, before, decode([wanted]), decode([token]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--skills", default="rename,change", help="separated by commas")
    parser.add_argument("--n", type=int, default=200, help="answers per skill")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="every miss")
    args = parser.parse_args()
    model = Answerer(args.gguf, n_ctx=N_CTX, n_threads=args.threads, n_together=1)
    found = {}
    for skill in args.skills.split(","):
        answers = list(measure(model, skill, args.n))
        print(f"{skill}: {describe(answers)}", flush=True)
        found[skill] = [asdict(miss) for _, missed in answers for miss in missed]
    if args.json:
        args.json.write_text(json.dumps(found, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
