"""`gptoss capacity`: estimate the machines that a number of users takes, by measured speeds."""

from pathlib import Path
from typing import Annotated

import typer

from gptoss_local.cli._options import Json, number
from gptoss_local.cli._output import print_json, print_table
from gptoss_local.machine.plan.words import rate


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
    from gptoss_local.cluster.capacity import ACTIVE, BUSY, Goal, read_bench

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
        f"{100 * ACTIVE:g} % of the users have an answer under way at a time; a machine is "
        f"{100 * BUSY:g} % busy, so that requests may come together.",
        f"A prompt has {prompt:,} tokens, none of them cached, and an answer {answer:,}. Answers "
        f"begin within {first_token:g} s and come with {tokens_per_user_s:g} tokens/s or more.",
        f"A machine answers {machine.n_seq} requests at the same time and holds "
        f"{machine.n_ctx:,} tokens. No drafts, no conversations that continue, no network.",
    ]
    if json:
        print_json(model=machine.model, goal=goal, capacity=found, notes=notes)
        return
    machines = "1 machine" if found.n_machines == 1 else f"{found.n_machines:,} machines"
    print(
        f"{users:,} users of {machine.model}: {machines} like this. "
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
