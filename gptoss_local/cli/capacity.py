"""`gptoss capacity`: estimate the machines that a number of users takes, by `gptoss bench`."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gptoss_local.base.errors import ContextOverflowError, DoesNotFitError, UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import read_text
from gptoss_local.cli._options import Json, number
from gptoss_local.cli._output import print_json, print_table
from gptoss_local.machine.plan.words import rate
from gptoss_local.runner.measuring import N_ANSWER, WIDTH_PROMPT, AtDepth, AtWidth, Count

_ACTIVE = 0.1  # share of the users that have an answer under way at the same time, on average
_BUSY = 0.7  # planned share of a machine's tokens/s; the rest is for requests that come together
_TAIL = 3.0  # of waits that fall off exponentially, 95 % are below three times their mean

_Points = Sequence[tuple[float, float]]


def capacity(
    bench: Annotated[
        Path, typer.Argument(metavar="BENCH", help="What `gptoss bench MODEL --json` printed.")
    ],
    users: Annotated[int, typer.Argument(min=1, help="How many people use it.")],
    tokens_per_user_s: Annotated[
        float,
        number("--tokens-per-user-s", 0.01, "Tokens/s of each answer; people read 10 to 20."),
    ] = 15.0,
    first_token: Annotated[
        float, number("--first-token", 0.001, "Seconds until an answer begins, at most.")
    ] = 5.0,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 1000,
    answer: Annotated[int, typer.Option(min=2, help="Tokens of an answer with reasoning.")] = 300,
    json: Json = False,
) -> None:
    """The speed for the users is estimated from measured steps."""
    machine = read_bench(bench)
    goal = Goal(
        n_users=users,
        n_prompt=prompt,
        n_answer=answer,
        tokens_per_user_s=tokens_per_user_s,
        first_token_s=first_token,
    )
    found = machine.capacity(goal)
    notes = [
        *machine.notes,
        f"{100 * _ACTIVE:g} % of the users have an answer under way at a time; a machine is "
        f"{100 * _BUSY:g} % busy, so that requests may come together.",
        f"A prompt has {prompt:,} tokens, none of them cached, and an answer {answer:,}. Answers "
        f"begin within {first_token:g} s and come with {tokens_per_user_s:g} tokens/s or more.",
        f"A machine answers {machine.n_seq} requests at the same time and holds "
        f"{machine.n_ctx:,} tokens. No drafts, no conversations that continue, no network.",
    ]
    if json:
        print_json(model=machine.model, goal=goal, capacity=found, notes=notes)
        return
    print(
        f"{users:,} users of {machine.model}: {counted(found.n_machines, 'machine')} like this. "
        f"One carries {found.users_per_machine:,}.\n"
    )
    print_table(
        ("USERS OF ONE", "ANSWERS AT ONCE", "TOKENS/S EACH", "FIRST TOKEN", "TOKENS/S"),
        [
            (
                f"{users / found.n_machines:,.0f}",
                f"{found.n_streams:,}",
                rate(found.user_tok_s),
                f"{found.first_token_s:,.2f} s",
                rate(found.tok_s),
            )
        ],
    )
    tok_s = found.tok_s * found.n_machines
    print(
        f"\nAn upstream for all of them: {tok_s:,.0f} tokens/s of answers and "
        f"{tok_s * prompt / answer:,.0f} of prompts, {found.n_cells:,} tokens of cache.\n"
    )
    for note in notes:
        print(f"- {note}")


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Promise each user so many tokens/s, and the first one after `first_token_s` at most."""

    n_users: int
    n_prompt: int
    n_answer: int
    tokens_per_user_s: float
    first_token_s: float


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The machines that a goal takes, and what each of them does."""

    n_machines: int
    users_per_machine: int
    n_streams: int  # answers at the same time on one machine
    tok_s: float  # of all answers of one machine
    user_tok_s: float  # of one answer
    first_token_s: float  # until 95 % of the answers have begun
    n_cells: int  # tokens of cache that all machines need together


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with a model in memory, as measured."""

    model: str
    n_ctx: int
    n_seq: int
    prefill: list[tuple[float, float]]  # seconds of a prompt by its tokens
    decode: list[tuple[float, float]]  # of a step by its streams, `WIDTH_PROMPT` tokens before each
    cell_s: float  # added to a step by each further token of context
    notes: list[str]

    def token_s(self, n_streams: float, goal: Goal) -> float:
        """Return the seconds between two tokens of an answer, prompts of others included."""
        n_more = goal.n_prompt + goal.n_answer / 2 - WIDTH_PROMPT - N_ANSWER / 2
        step_s = max(_at(self.decode, n_streams) + self.cell_s * n_streams * n_more, 1e-6)
        return step_s + n_streams * _at(self.prefill, goal.n_prompt) / goal.n_answer

    def capacity(self, goal: Goal) -> Capacity:
        n_cells, prefill_s = goal.n_prompt + goal.n_answer, _at(self.prefill, goal.n_prompt)
        if n_cells > self.n_ctx:
            raise ContextOverflowError(
                f"a prompt and its answer have {n_cells:,} tokens, and the context holds "
                f"{self.n_ctx:,}"
            )
        if prefill_s > goal.first_token_s:
            raise DoesNotFitError(
                f"a prompt of {goal.n_prompt:,} tokens alone has its first token after "
                f"{prefill_s:.1f} s, not {goal.first_token_s:g}",
                hint="It takes a faster machine, shorter prompts or a larger --first-token.",
            )
        alone_tok_s = 1 / self.token_s(1, goal)
        if alone_tok_s < goal.tokens_per_user_s:
            raise DoesNotFitError(
                f"an answer alone comes with {alone_tok_s:.1f} tokens/s, "
                f"not {goal.tokens_per_user_s:g}",
                hint="It takes a faster machine or fewer --tokens-per-user-s.",
            )
        widths = range(1, min(self.n_seq, self.n_ctx // n_cells) + 1)
        kept = [w for w in widths if 1 / self.token_s(w, goal) >= goal.tokens_per_user_s]
        most_tok_s = _BUSY * max(w / self.token_s(w, goal) for w in kept)
        # the share of the time that prompts may take: those that come together wait for each other
        patience = goal.first_token_s / prefill_s - 1
        busy = patience / (patience + _TAIL)
        most_tok_s = min(most_tok_s, busy * goal.n_answer / prefill_s)
        users_per_machine = max(1, math.floor(most_tok_s / (_ACTIVE * goal.tokens_per_user_s)))
        n_machines = math.ceil(goal.n_users / users_per_machine)
        tok_s = goal.n_users * _ACTIVE * goal.tokens_per_user_s / n_machines
        n_streams = next((w for w in kept if w / self.token_s(w, goal) >= tok_s), kept[-1])
        busy = min(busy, tok_s * prefill_s / goal.n_answer)
        return Capacity(
            n_machines=n_machines,
            users_per_machine=users_per_machine,
            n_streams=n_streams,
            tok_s=tok_s,
            user_tok_s=1 / self.token_s(n_streams, goal),
            first_token_s=prefill_s * (1 + _TAIL * busy / (1 - busy)),
            n_cells=math.ceil(goal.n_users * _ACTIVE) * n_cells,
        )


class _Shape(msgspec.Struct):
    n_seq: Count


class _Plan(msgspec.Struct):
    shape: _Shape


class _Benchmark(msgspec.Struct):
    model: str
    n_ctx: Count
    depths: Annotated[list[AtDepth], msgspec.Meta(min_length=1)]
    widths: list[AtWidth]
    plan: _Plan


class _BenchFile(msgspec.Struct):
    """The needed part of a printed benchmark; one written by hand has its `source`."""

    benchmark: _Benchmark
    date: str = ""
    source: str = ""


def read_bench(path: Path) -> Machine:
    try:
        content = read_text(path, hint="`gptoss bench MODEL --json` prints one.")
        file = msgspec.json.decode(content, type=_BenchFile)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path} is not what `gptoss bench --json` prints: {in_words(error)}"
        ) from error
    found = file.benchmark
    depths = sorted(found.depths, key=lambda d: d.n_tokens)
    first, last = depths[0], depths[-1]
    n_more = last.n_tokens - first.n_tokens
    more_s = 1 / last.decode_tok_s - 1 / first.decode_tok_s
    decode = [(w.n_streams, w.n_streams / w.decode_tok_s) for w in found.widths]
    of_date = f" of {file.date}" if file.date else ""
    return Machine(
        model=found.model,
        n_ctx=found.n_ctx,
        n_seq=found.plan.shape.n_seq if decode else 1,
        prefill=[(d.n_tokens, d.n_tokens / d.prefill_tok_s) for d in depths],
        decode=sorted(decode) or [(1, 1 / first.decode_tok_s)],
        cell_s=max(0.0, more_s / n_more) if n_more else 0.0,
        notes=[f"Measured: {path}{of_date}.", *([file.source] if file.source else [])],
    )


def _at(points: _Points, x: float) -> float:
    """Interpolate `points` at `x`; the line continues as it ends, but never falls."""
    if len(points) == 1 or x <= points[0][0]:
        return points[0][1]
    (left, low), (right, high) = next(
        (pair for pair in pairwise(points) if x <= pair[1][0]), (points[-2], points[-1])
    )
    return max(low, low + (high - low) * (x - left) / (right - left))
