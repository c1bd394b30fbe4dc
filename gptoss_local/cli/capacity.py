"""`gptoss capacity`: how many machines a number of users takes, from measured step times."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptoss_local.cli._options import Json, number
from gptoss_local.cli._output import print_json, print_table, say
from gptoss_local.errors import UsageError

if TYPE_CHECKING:
    from gptoss_local.cluster.capacity.sizing import Goal, Promise, Service
    from gptoss_local.cluster.capacity.source import BenchSource

_COLUMNS = ("TOKENS/S EACH", "FIRST TOKEN", "NEXT TOKEN", "TOKENS/S")


def capacity(
    bench: Annotated[
        Path, typer.Argument(metavar="BENCH", help="What `gptoss bench MODEL --json` printed.")
    ],
    demand: Annotated[
        str,
        typer.Argument(
            metavar="USERS|FILE", help="How many people use it, or a file of recorded requests."
        ),
    ],
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
    """The speed for the users comes from a simulation of the scheduler."""
    from gptoss_local.cluster.capacity.sizing import Goal, Promise
    from gptoss_local.cluster.capacity.source import read_bench

    source = read_bench(bench)
    if not demand.isdecimal():
        promise = Promise(tokens_per_user_s=tokens_per_user_s, first_token_s=first_token)
        _replay(source, promise, Path(demand), json)
        return
    if int(demand) < 1:
        raise UsageError("there must be one user or more")
    goal = Goal(
        n_users=int(demand),
        n_prompt=prompt,
        n_answer=answer,
        tokens_per_user_s=tokens_per_user_s,
        first_token_s=first_token,
    )
    _size(source, goal, json)


def _tell(what: str) -> None:
    say(f"simulating {what} …")


def _size(source: "BenchSource", goal: "Goal", json: bool) -> None:
    from gptoss_local.cluster.capacity.sizing import size

    found = size(source.profile, goal, _tell)
    notes = [*source.notes, *_assumptions(source, goal)]
    if json:
        print_json(
            model=source.model, goal=goal, profile=source.profile, capacity=found, notes=notes
        )
        return
    print(
        f"{goal.n_users:,} users of {source.model}: {_machines(found.n_machines)} like this. "
        f"One carries {found.users_per_machine:,}.\n"
    )
    names = ((found.load, ""), (found.largest, "most"), (found.one_more, "one active more"))
    rows = [
        (f"{load.n_users:,.0f}", f"{load.n_streams:,.1f}", *_cells(load), name)
        for load, name in names
    ]
    print_table(("USERS OF ONE", "ACTIVE", *_COLUMNS, ""), rows)
    needed = found.demand
    print(
        f"\nAn upstream for all of them: {needed.tok_s:,.0f} tokens/s of answers and "
        f"{needed.prompt_tok_s:,.0f} of prompts,\n{needed.n_streams:,.1f} answers at the same "
        f"time, {needed.n_cells:,} tokens of cache.\n"
    )
    _print_notes(notes)


def _assumptions(source: "BenchSource", goal: "Goal") -> list[str]:
    from gptoss_local.cluster.capacity.sizing import ACTIVE

    profile = source.profile
    return [
        f"{100 * ACTIVE:g} % of the users have an answer under way at a time. Requests come "
        "at random (Poisson), and each machine gets its share of them.",
        f"A prompt has {goal.n_prompt:,} tokens, none of them cached, and an answer "
        f"{goal.n_answer:,}. 95 % of the answers begin within "
        f"{goal.first_token_s:g} s and come with {goal.tokens_per_user_s:g} tokens/s or more.",
        f"A machine answers {profile.n_seq} requests at the same time and holds "
        f"{profile.n_ctx:,} tokens: {profile.n_ctx // profile.n_seq:,} for each.",
        "No drafts, no conversations that continue, no time for the network.",
    ]


def _replay(source: "BenchSource", promise: "Promise", arrivals: Path, json: bool) -> None:
    from gptoss_local.cluster.capacity.sizing import size_recorded
    from gptoss_local.cluster.capacity.source import read_arrivals

    requests = read_arrivals(arrivals, source.profile.n_ctx)
    found = size_recorded(source.profile, promise, requests, _tell)
    if json:
        print_json(
            model=source.model,
            promise=promise,
            profile=source.profile,
            n_requests=len(requests),
            routed=found,
            notes=source.notes,
        )
        return
    machines = _machines(found[-1].n_machines)
    print(f"{len(requests):,} requests of {arrivals} to {source.model}: {machines} like this.\n")
    rows = [
        (str(each.n_machines), each.routing, *_cells(each), f"{100 * each.cached_share:.0f} %")
        for each in found
    ]
    print_table(("MACHINES", "ROUTING", *_COLUMNS, "CACHED"), rows)
    print()
    _print_notes(source.notes)


def _machines(n: int) -> str:
    return "1 machine" if n == 1 else f"{n:,} machines"


def _cells(service: "Service") -> tuple[str, ...]:
    from gptoss_local.machine.plan.words import rate

    return (
        rate(service.user_tok_s),
        f"{service.first_token_s:,.2f} s",
        f"{1000 * service.token_gap_s:,.0f} ms",
        rate(service.tok_s),
    )


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        print(f"- {note}")
