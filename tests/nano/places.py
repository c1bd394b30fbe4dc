"""Which tokens of an answer a GGUF misses: `python -m tests.nano.places GGUF --skills rename`.

Each held-out answer is given up to each of its tokens, so that a miss hides none behind it: where
answers are long, far more evidence in the same time than whole answers are (`tests.nano.evaluate`).
Told apart are turns (`tests.nano.train.turns`) and what is copied. A miss is not always wrong: a
word can often be spelled in several ways.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gptoss_local.llama import Batch, Context, ContextParams, Model
from tests.nano.data.document import encode_document, load_vocabulary
from tests.nano.data.mixture import draw_eval
from tests.nano.data.source import Source
from tests.nano.train.turns import branch_turns, followers

SEED = 4242  # as in `tests.nano.evaluate`
N_CTX, N_ROWS = 49_152, 128  # rows of logits at once, 0.8 MB each
N_SHOWN = 8  # tokens before a miss


@dataclass(frozen=True, slots=True)
class Miss:
    """A token that is not the likeliest one where it stands, and what the model had said."""

    is_turn: bool
    before: str
    wanted: str
    got: str


@dataclass(slots=True)
class Count:
    """Of one skill."""

    n_answers: int = 0
    n_turns: int = 0
    n_copied: int = 0
    n_turns_missed: int = 0
    n_copied_missed: int = 0
    n_answers_missed: int = 0

    def add(self, is_turn: Sequence[bool], misses: Sequence[Miss]) -> None:
        """Count one answer, of whose tokens `misses` are missed."""
        n_turns, n_turns_missed = sum(is_turn), sum(miss.is_turn for miss in misses)
        self.n_answers += 1
        self.n_turns += n_turns
        self.n_copied += len(is_turn) - n_turns
        self.n_turns_missed += n_turns_missed
        self.n_copied_missed += len(misses) - n_turns_missed
        self.n_answers_missed += bool(misses)


class Reader:
    """A model that says what it holds for likeliest behind each token."""

    def __init__(self, gguf: Path, *, n_threads: int) -> None:
        params = ContextParams(
            n_ctx=N_CTX, n_threads_prefill=n_threads, n_threads_decode=n_threads,
            n_outputs_max=N_ROWS,
        )  # fmt: skip
        self._context = Context(Model(gguf), params)
        self._batch = Batch(self._context.n_batch)

    def likeliest(self, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
        """The likeliest token at each place of `answer`, given the right ones before it."""
        self._context.remove(0)
        n_read, n_batch = len(prompt) - 1, self._context.n_batch
        for start in range(0, n_read, n_batch):
            self._context.decode(prompt[start : min(start + n_batch, n_read)], position=start)
        tokens, found = [prompt[-1], *answer[:-1]], list[int]()
        for start in range(0, len(tokens), N_ROWS):
            part = tokens[start : start + N_ROWS]
            self._batch.clear()
            self._batch.extend(part, n_read + start, 0, n_outputs=len(part))
            self._context.decode_batch(self._batch)
            found += (int(np.argmax(self._context.logits(row))) for row in range(len(part)))
        return found


def measure(reader: Reader, skill: str, n: int) -> Iterator[tuple[list[bool], list[Miss]]]:
    """The first `n` answers of a skill: which of their tokens are turns, and what is missed."""
    source, index, n_done = Source(SEED, held_out=True), 0, 0
    while n_done < n:
        context, branches = encode_document(draw_eval(skill, source, index))
        read = followers(context)
        for branch in branches[: n - n_done]:
            got = reader.likeliest(context + branch.prompt, branch.target)
            is_turn = branch_turns(context, branch, read).tolist()
            yield is_turn, list(_misses(branch.target, got, is_turn))
        index, n_done = index + 1, n_done + len(branches)


def _misses(target: Sequence[int], got: Sequence[int], is_turn: Sequence[bool]) -> Iterator[Miss]:
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
    reader, misses = Reader(args.gguf, n_threads=args.threads), {}
    for skill in args.skills.split(","):
        count, misses[skill] = Count(), []
        for is_turn, missed in measure(reader, skill, args.n):
            count.add(is_turn, missed)
            misses[skill] += [asdict(miss) for miss in missed]
        print(
            f"{skill}: {count.n_turns_missed} of {count.n_turns} turns missed, "
            f"{count.n_copied_missed} of {count.n_copied} other tokens; "
            f"{count.n_answers_missed} of {count.n_answers} answers miss any",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(misses, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
