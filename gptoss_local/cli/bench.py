"""`gptoss bench`: how fast a model is here, and how fast it was expected to be."""

import datetime
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gptoss_local.cli._measuring import unload, warn_if_busy
from gptoss_local.cli._options import Context, Dark, Json, ModelName, Parallel, Plot, Quiet, named
from gptoss_local.cli._output import print_json, print_table
from gptoss_local.errors import UsageError
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.machine.hardware import Machine
    from gptoss_local.runner.benchmark import Benchmark


def bench(
    model: ModelName,
    ctx: Context = None,
    parallel: Parallel = None,
    plot: Plot = None,
    dark: Dark = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure MODEL: short and long prompts, and several answers at the same time.

    A server that has MODEL in memory unloads it first.
    """
    import asyncio

    from gptoss_local.machine.hardware import read_machine
    from gptoss_local.models.store import find_model
    from gptoss_local.runner.benchmark import measure

    if plot is not None:
        check_plot(plot)
    settings = load_settings(context_length=ctx, num_parallel=parallel)
    machine, versions = read_machine(settings.models_dir), _versions()
    date = datetime.date.today().isoformat()
    entry = find_model(named(model, settings), settings)
    unload(entry.name, settings)
    warn_if_busy()

    def tell(what: str) -> None:
        if not quiet:
            print(f"{what} …", file=sys.stderr, flush=True)

    found = asyncio.run(measure(entry, settings, tell))
    if json:
        print_json(benchmark=found, machine=machine, versions=versions, date=date)
    else:
        _print(found)
    if plot is not None:
        from gptoss_local.cli._plot import draw

        try:
            draw(found, f"{_machine(machine)}; {versions}; {date}", plot, is_dark=dark)
        except OSError as error:
            raise UsageError(f"{plot} cannot be written: {error.strerror}") from error


def check_plot(plot: Path) -> None:
    """Refuse an impossible chart before minutes of measuring."""
    from gptoss_local.cli._plot import FORMATS

    if plot.suffix.lower() not in FORMATS:
        raise UsageError(
            f"{plot} is not a .svg or .png file.", hint=f"Name it {plot.stem}.svg or .png."
        )
    if not plot.parent.is_dir():
        raise UsageError(f"{plot.parent} is not a folder.", hint="Make it first.")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "a chart needs Matplotlib, which is not installed.",
            hint=f"Install it where gptoss is: {sys.executable} -m pip install matplotlib",
        )


def _versions() -> str:
    from gptoss_local import __version__
    from gptoss_local.machine.hardware import llama_version

    return f"gptoss {__version__}, llama-cpp-python {llama_version()}"


def _machine(machine: "Machine") -> str:
    from gptoss_local.machine.plan.words import gib

    gpus = [f"{gpu.name} ({gib(gpu.total_bytes)})" for gpu in machine.usable_gpus]
    cores = f"{machine.n_cores} CPU cores" if machine.n_cores else "a CPU"
    return ", ".join([*(gpus or ["no GPU"]), cores, f"{gib(machine.total_bytes)} of RAM"])


def _print(found: "Benchmark") -> None:
    from gptoss_local.machine.plan.words import rate

    print(f"{found.model}: loaded in {found.load_s:.1f} s, {found.n_ctx:,} tokens of context\n")
    rows = [(f"{d.n_tokens:,}", rate(d.prefill_tok_s), rate(d.decode_tok_s))
            for d in found.depths]  # fmt: skip
    print_table(("PROMPT", "READ TOKENS/S", "ANSWER TOKENS/S"), rows)
    if found.widths:
        print()
        widths = [(str(w.n_streams), rate(w.decode_tok_s)) for w in found.widths]
        print_table(("PARALLEL ANSWERS", "TOKENS/S"), widths)
    speed = found.plan.speed
    print(
        f"\nExpected of 4,096 tokens: read at {rate(speed.prefill_tok_s)} tokens/s, bound by "
        f"{speed.prefill_bound}; answered at {rate(speed.decode_tok_s)}, bound by "
        f"{speed.decode_bound}."
    )
