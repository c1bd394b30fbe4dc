"""`gptoss capacity`: how many machines a number of users takes, from measured step times."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptoss_local.cli._options import Context, Dark, Json, Parallel, Plot, Quiet, entry_to_read
from gptoss_local.cli._output import print_json, print_table
from gptoss_local.errors import UsageError
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.capacity.sizing import Capacity, Goal, Promise, Service
    from gptoss_local.capacity.source import Source

_COLUMNS = ("TOKENS/S EACH", "FIRST TOKEN", "NEXT TOKEN", "TOKENS/S")


def capacity(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="Name, or path of a GGUF file.")
    ] = "",
    users: Annotated[int | None, typer.Option(min=1, help="How many people use it.")] = None,
    tokens_per_user_s: Annotated[
        float, typer.Option(min=0.01, help="Tokens/s of each answer; people read 10 to 20.")
    ] = 15.0,
    first_token: Annotated[
        float, typer.Option(min=0.001, help="Seconds until an answer begins, at most.")
    ] = 5.0,
    active: Annotated[
        float, typer.Option(min=1e-6, max=1, help="Share of the users reading an answer at a time.")
    ] = 0.1,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 1000,
    answer: Annotated[int, typer.Option(min=2, help="Tokens of an answer with reasoning.")] = 300,
    shared: Annotated[
        int, typer.Option(min=0, help="Tokens that all prompts start with, which are cached.")
    ] = 0,
    arrivals: Annotated[
        Path | None, typer.Option(help="Recorded requests instead of users, as Mooncake's traces.")
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(help="Measured elsewhere: what `gptoss bench --json` printed.")
    ] = None,
    ctx: Context = None,
    parallel: Parallel = None,
    plot: Plot = None,
    dark: Dark = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show how many machines a number of users takes, from step times measured here or elsewhere.

    A simulation of the scheduler says what the users get.
    """
    from gptoss_local.capacity.sizing import Goal, Promise

    if (users is None) == (arrivals is None):
        raise UsageError("give either --users or --arrivals, to say what is asked for")
    if plot is not None:
        _check(plot, arrivals)
    source = _source(model, bench, ctx, parallel)
    promise = Promise(tokens_per_user_s=tokens_per_user_s, first_token_s=first_token)

    def tell(what: str) -> None:
        if not quiet:
            print(f"simulating {what} …", file=sys.stderr, flush=True)

    if arrivals is not None:
        _replay(source, promise, arrivals, tell, json)
        return
    goal = Goal(
        n_users=users or 1,
        active=active,
        n_prompt=prompt,
        n_answer=answer,
        n_shared=min(shared, prompt),
        tokens_per_user_s=tokens_per_user_s,
        first_token_s=first_token,
    )
    _size(source, goal, tell, json, plot, dark)


def _check(plot: Path, arrivals: Path | None) -> None:
    from gptoss_local.cli.bench import check_plot

    check_plot(plot)
    if arrivals is not None:
        raise UsageError("--plot draws by users, so not with --arrivals")


def _source(model: str, bench: Path | None, ctx: int | None, parallel: int | None) -> "Source":
    from msgspec.structs import replace

    from gptoss_local.capacity.source import read_bench, read_stored
    from gptoss_local.store import find_model

    if bench is not None:
        source = read_bench(bench)
        n_ctx, n_seq = ctx or source.profile.n_ctx, parallel or source.profile.n_seq
        source = replace(source, profile=replace(source.profile, n_ctx=n_ctx, n_seq=n_seq))
    elif model:
        settings = load_settings(context_length=ctx, num_parallel=parallel)
        entry = entry_to_read(model, settings)
        path = entry.ensure_file(settings)
        if entry.embedded:
            entry = find_model(entry.name, settings)  # it has a file now
        source = read_stored(entry, path, settings)
    else:
        raise UsageError(
            "neither a MODEL nor a --bench file is given",
            hint="For example: `gptoss tune nano`, then `gptoss capacity nano --users 20`.",
        )
    if parallel and parallel > (n_most := source.profile.n_rows_max):
        raise UsageError(
            f"steps of {n_most} answers at most were measured, not of {parallel}",
            hint=f"`gptoss bench MODEL --parallel {parallel} --json > bench.json` measures them.",
        )
    return source


def _size(
    source: "Source",
    goal: "Goal",
    tell: Callable[[str], None],
    json: bool,
    plot: Path | None,
    dark: bool,
) -> None:
    from gptoss_local.capacity.sizing import size

    found = size(source.profile, goal, tell)
    notes = [*source.notes, *_assumptions(source, goal)]
    if json:
        print_json(
            model=source.model, goal=goal, profile=source.profile, capacity=found, notes=notes
        )
    else:
        _print(source.model, goal, found, notes)
    if plot is not None:
        from gptoss_local.cli._plot import draw_capacity

        try:
            draw_capacity(source.model, goal, found, notes[0], plot, is_dark=dark)
        except OSError as error:
            raise UsageError(f"{plot} cannot be written: {error.strerror}") from error


def _assumptions(source: "Source", goal: "Goal") -> list[str]:
    profile = source.profile
    return [
        f"{100 * goal.active:g} % of the users have an answer under way at a time. Requests come "
        "at random (Poisson), and each machine gets its share of them.",
        f"A prompt has {goal.n_prompt:,} tokens, {goal.n_prompt - goal.n_shared:,} of them new, "
        f"and an answer {goal.n_answer:,}. 95 % of the answers begin within "
        f"{goal.first_token_s:g} s and come with {goal.tokens_per_user_s:g} tokens/s or more.",
        f"A machine answers {profile.n_seq} requests at the same time and holds "
        f"{profile.n_ctx:,} tokens: {profile.n_ctx // profile.n_seq:,} for each.",
        "No drafts, no conversations that continue, no time for the network.",
    ]


def _print(model: str, goal: "Goal", found: "Capacity", notes: list[str]) -> None:
    machines = "1 machine" if found.n_machines == 1 else f"{found.n_machines:,} machines"
    print(
        f"{goal.n_users:,} users of {model}: {machines} like this. "
        f"One carries {found.users_per_machine:,}.\n"
    )
    names = ((found.load, ""), (found.largest, "most"), (found.one_more, "one active more"))
    rows = [
        (f"{load.n_users:,.0f}", f"{load.n_streams:,.1f}", *_cells(load), name)
        for load, name in names
    ]
    print_table(("USERS OF ONE", "ACTIVE", *_COLUMNS, ""), rows)
    demand = found.demand
    print(
        f"\nAn upstream for all of them: {demand.tok_s:,.0f} tokens/s of answers and "
        f"{demand.prompt_tok_s:,.0f} of prompts,\n{demand.n_streams:,.1f} answers at the same "
        f"time, {demand.n_cells:,} tokens of cache.\n"
    )
    _print_notes(notes)


def _replay(
    source: "Source",
    promise: "Promise",
    arrivals: Path,
    tell: Callable[[str], None],
    json: bool,
) -> None:
    from gptoss_local.capacity.arrivals import read_arrivals
    from gptoss_local.capacity.sizing import size_recorded

    requests = read_arrivals(arrivals, source.profile.n_ctx)
    found = size_recorded(source.profile, promise, requests, tell)
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
    n_machines = found[-1].n_machines
    machines = "1 machine" if n_machines == 1 else f"{n_machines:,} machines"
    print(f"{len(requests):,} requests of {arrivals} to {source.model}: {machines} like this.\n")
    rows = [
        (str(each.n_machines), each.routing, *_cells(each), f"{100 * each.cached_share:.0f} %")
        for each in found
    ]
    print_table(("MACHINES", "ROUTING", *_COLUMNS, "CACHED"), rows)
    print()
    _print_notes(source.notes)


def _cells(service: "Service") -> tuple[str, ...]:
    from gptoss_local.plan.words import rate

    return (
        rate(service.user_tok_s),
        f"{service.first_token_s:,.2f} s",
        f"{1000 * service.token_gap_s:,.0f} ms",
        rate(service.tok_s),
    )


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        print(f"- {note}")
