"""`gptoss bench`: how fast a model is here, beside what was expected of it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptoss_local.cli._measuring import unload, warn_if_busy
from gptoss_local.cli._options import Json, ModelName, Quiet, named
from gptoss_local.cli._output import print_json, print_table
from gptoss_local.errors import UsageError
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.server.benchmark import Benchmark


def bench(
    model: ModelName,
    ctx: Annotated[int | None, typer.Option(min=1, help="Tokens of context.")] = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, max=64, help="Most answers at once.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture to this .svg file.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure MODEL: prompts and answers behind short and long contexts, answers at once.

    A server that has MODEL in memory unloads it first.
    """
    import asyncio

    from gptoss_local.cli._plot import draw
    from gptoss_local.server.benchmark import measure
    from gptoss_local.store import find_model

    if plot is not None:
        _check(plot)
    settings = load_settings(context_length=ctx, num_parallel=parallel)
    entry = find_model(named(model, settings), settings)
    unload(entry.name, settings)
    warn_if_busy()

    def tell(what: str) -> None:
        if not quiet:
            print(f"{what} …", file=sys.stderr, flush=True)

    found = asyncio.run(measure(entry, settings, tell))
    if json:
        print_json(benchmark=found)
    else:
        _print(found)
    if plot is not None:
        try:
            plot.write_text(draw(found))
        except OSError as error:
            raise UsageError(f"{plot} cannot be written: {error.strerror}") from error


def _check(plot: Path) -> None:
    """Before minutes of measuring."""
    if plot.suffix.lower() != ".svg":
        raise UsageError(f"{plot} is no .svg file.", hint="Name it like bench.svg.")
    if not plot.parent.is_dir():
        raise UsageError(f"{plot.parent} is no folder.", hint="Make it first.")


def _print(found: "Benchmark") -> None:
    from gptoss_local.plan.words import rate

    print(f"{found.model}: loaded in {found.load_s:.1f} s, {found.n_ctx:,} tokens of context\n")
    rows = [(f"{d.n_tokens:,}", rate(d.prefill_tok_s), rate(d.decode_tok_s))
            for d in found.depths]  # fmt: skip
    print_table(("PROMPT", "READ TOKENS/S", "ANSWER TOKENS/S"), rows)
    if found.widths:
        print()
        print_table(
            ("ANSWERS AT ONCE", "TOKENS/S"),
            [(str(w.n_streams), rate(w.decode_tok_s)) for w in found.widths],
        )
    speed = found.plan.speed
    print(
        f"\nExpected of 4,096 tokens: read at {rate(speed.prefill_tok_s)} tokens/s, bound by "
        f"{speed.prefill_bound}; answered at {rate(speed.decode_tok_s)}, bound by "
        f"{speed.decode_bound}."
    )
