"""`gptoss bench`: how fast a model is here, beside what was expected of it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    """Measure MODEL: prompts and answers behind short and long contexts, answers at once."""
    import asyncio

    from gptoss_local.cli._plot import draw
    from gptoss_local.server.benchmark import measure
    from gptoss_local.store import find_model

    if plot is not None and plot.suffix != ".svg":
        raise UsageError(f"{plot} is no .svg file.", hint="Name it like bench.svg.")
    settings = load_settings(context_length=ctx, num_parallel=parallel)
    entry = find_model(named(model, settings), settings)

    def tell(what: str) -> None:
        if not quiet:
            print(f"{what} …", file=sys.stderr, flush=True)

    found = asyncio.run(measure(entry, settings, tell))
    if plot is not None:
        plot.write_text(draw(found))
    if json:
        print_json(benchmark=found)
    else:
        _print(found)


def _print(found: "Benchmark") -> None:
    print(f"{found.model}: loaded in {found.load_s:.1f} s, {found.n_ctx:,} tokens of context\n")
    rows = [(f"{d.n_tokens:,}", _rate(d.prefill_tok_s), _rate(d.decode_tok_s))
            for d in found.depths]  # fmt: skip
    print_table(("PROMPT", "READ TOKENS/S", "ANSWER TOKENS/S"), rows)
    print()
    print_table(
        ("ANSWERS AT ONCE", "TOKENS/S"),
        [(str(w.n_streams), _rate(w.decode_tok_s)) for w in found.widths],
    )
    speed = found.plan.speed
    print(
        f"\nExpected of 4,096 tokens: read at {_rate(speed.prefill_tok_s)} tokens/s, bound by "
        f"{speed.prefill_bound}; answered at {_rate(speed.decode_tok_s)}, bound by "
        f"{speed.decode_bound}."
    )


def _rate(tokens_s: float) -> str:
    return f"{tokens_s:,.0f}" if tokens_s >= 10 else f"{tokens_s:.1f}"
