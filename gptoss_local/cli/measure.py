"""`gptoss bench` and `gptoss tune`: a model's speed here, shown, drawn or kept for plans."""

import contextlib
import datetime
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

from gptoss_local import __version__
from gptoss_local.base.errors import ServerUnavailableError, UsageError
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.cli._options import Context, Json, ModelName, Parallel, Quiet, named
from gptoss_local.cli._output import print_json, print_table, progress_bar, say
from gptoss_local.machine.hardware import Machine, llama_version, read_machine
from gptoss_local.machine.nvidia import BUSY_PERCENT
from gptoss_local.machine.plan import words
from gptoss_local.models.store import ModelEntry, find_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gptoss_local.runner.measuring import Benchmark, TuneResult

_LOOK_S = 0.3
_Agent = Annotated[
    int, typer.Option("--agent", min=0, help="Tokens that an agent begins with; 0: no agent.")
]
_COLUMNS = {  # of llama-bench, with its widths
    "model": "<30", "size": ">10", "params": ">10", "backend": "<10", "ngl": ">3",
    "n_cpu_moe": ">10", "threads": ">7", "n_ubatch": ">8", "type_k": ">6", "type_v": ">6",
    "test": ">15", "t/s": ">20",
}  # fmt: skip

_EXPECTED_TOKENS = 4096
_LOG_FROM = 12  # times the smallest rate: above, a linear axis presses that to the floor
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.parse_math": False,  # a name may have a $
    "svg.fonttype": "none",  # text that can be searched and copied
    "svg.hashsalt": "gptoss",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def bench(
    model: ModelName,
    ctx: Context = None,
    parallel: Parallel = None,
    agent: _Agent = 11_000,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw a chart into this .svg or .png file.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A server that has MODEL in memory unloads it first."""
    import asyncio  # PERF: with `measuring` 100 ms, of a Tab

    from gptoss_local.runner import measuring

    if plot is not None:
        _check_plot(plot)
    settings = load_settings(context_length=ctx, num_parallel=parallel)
    machine, date = read_machine(settings.models_dir), datetime.date.today().isoformat()
    versions = f"gptoss {__version__}, llama-cpp-python {llama_version()}"
    entry = _ready(model, settings)
    found = asyncio.run(
        measuring.measure(
            entry, settings, lambda what: None if quiet else say(f"{what} …"), n_agent=agent
        )
    )
    measured_on = f"{_machine(machine)}; {versions}; {date}"
    if json:
        print_json(benchmark=found, machine=machine, versions=versions, date=date)
    else:
        _print_benchmark(found, measured_on)
    if plot is not None:
        try:
            _draw(found, measured_on, plot)
        except OSError as error:
            raise UsageError(f"{plot} cannot be written: {error.strerror}") from error


def tune(model: ModelName, json: Json = False, quiet: Quiet = False) -> None:
    """A server that has MODEL in memory unloads it first."""
    import asyncio

    from gptoss_local.runner import measuring

    settings = load_settings()
    entry = _ready(model, settings)
    n_bytes = entry.ensure_file(settings).stat().st_size
    with progress_bar(tenths=True, quiet=quiet or json) as bar:

        def loading(fraction: float) -> None:
            bar(f"loading {entry.name} to measure it", round(fraction * n_bytes), n_bytes)

        found = asyncio.run(measuring.tune(entry, settings, loading))
    if json:
        print_json(tuning=found)
    else:
        _print_tuning(found)


def _ready(model: str, settings: Settings) -> ModelEntry:
    entry = find_model(named(model, settings), settings)
    from gptoss_local.api.client import Client
    from gptoss_local.runner.measuring import disturbance

    client = Client(settings)
    is_running = False
    with contextlib.suppress(ServerUnavailableError):  # another program's, as Ollama's
        is_running = client.is_running()
    if is_running and entry.name in (running.name for running in client.running_models()):
        client.unload(entry.name)
    percent = psutil.cpu_percent(_LOOK_S)
    if percent > BUSY_PERCENT:
        say(f"other programs use {percent:.0f} % of the processor: figures will be too low")
    if told := disturbance():
        say(told)
    return entry


def _check_plot(plot: Path) -> None:
    """Refuse an impossible chart before minutes of measuring."""
    if plot.suffix.lower() not in (".svg", ".png"):
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


def _machine(machine: Machine) -> str:
    gpus = [f"{gpu.name} ({words.gib(gpu.total_bytes)})" for gpu in machine.usable_gpus]
    cores = f"{machine.n_cores} CPU cores" if machine.n_cores else "a CPU"
    return ", ".join([*(gpus or ["no GPU"]), cores, f"{words.gib(machine.total_bytes)} of RAM"])


def _print_benchmark(found: "Benchmark", measured_on: str) -> None:
    print(f"{found.model}: loaded in {found.load_s:.1f} s, {found.n_ctx:,} tokens of context\n")
    print_rows(found)
    print(f"\n{measured_on}")
    if found.widths:
        print()
        widths = [(str(w.n_streams), words.rate(w.decode_tok_s)) for w in found.widths]
        print_table(("PARALLEL ANSWERS", "TOKENS/S"), widths)
    speed = found.plan.speed
    print(
        f"\nExpected of 4,096 tokens: read at {words.rate(speed.prefill_tok_s)} tokens/s, bound by "
        f"{speed.prefill_bound}; answered at {words.rate(speed.decode_tok_s)}, bound by "
        f"{speed.decode_bound}."
    )


def print_rows(found: "Benchmark") -> None:
    """Print Markdown as llama-bench does, without columns that have its defaults."""
    placement, shape, is_cpu = found.plan.placement, found.plan.shape, found.backends == "CPU"
    size, params = found.model_size / 2**20, found.model_n_params / 1e6
    cells = {
        "model": found.model_type,
        "size": f"{size / 1024:.2f} GiB" if size >= 1024 else f"{size:.2f} MiB",
        "params": f"{params / 1000:.2f} B" if params >= 1000 else f"{params:.2f} M",
        "backend": found.backends,
        "threads" if is_cpu else "ngl": str(placement.n_gpu_layers),
    }
    if n_layers := len(placement.host_experts) + len(placement.host_parts):
        cells["n_cpu_moe"] = str(n_layers)
    if shape.n_batch != 512:
        cells["n_ubatch"] = str(shape.n_batch)
    if shape.cache_type != "f16":
        cells |= dict.fromkeys(("type_k", "type_v"), shape.cache_type)
    rows = []
    for test in found.tests:
        if is_cpu:
            cells["threads"] = str(test.n_threads)
        rate = f"{test.avg_ts:.2f} ± {test.stddev_ts:.2f}"
        rows.append(cells | {"test": test.test, "t/s": rate})
    rule = {t: "-" * (int(_COLUMNS[t][1:]) - 1) + "-:"[_COLUMNS[t][0] == ">"] for t in rows[0]}
    for row in ({title: title for title in rows[0]}, rule, *rows):
        print("|", " | ".join(format(text, _COLUMNS[title]) for title, text in row.items()), "|")


def _print_tuning(found: "TuneResult") -> None:
    print(f"{found.model}: measured in {found.seconds:.1f} s\n")
    tuning, steps = found.measured.tuning, found.measured.steps
    if tuning is None:
        raise RuntimeError("tuning ends with its figures")
    prefill = {n: f"{rate:,.0f}" for n, rate in tuning.prefill}
    rows = [(str(n), f"{rate:,.1f}", prefill.get(n, "")) for n, rate in tuning.decode]
    print_table(("THREADS", "ANSWER TOKENS/S", "PROMPT TOKENS/S"), rows)
    if steps:
        print()
        costs = [(str(n), f"{1000 * s:,.2f}") for n, s in steps.seconds]
        print_table(("TOKENS A STEP", "MS"), costs)
    if tuning.offload:
        print()
        times = [
            (str(n), f"{1000 * host_s:,.0f}" if host_s is not None else "", f"{1000 * gpu_s:,.0f}")
            for n, host_s, gpu_s in tuning.offload
        ]
        print_table(("TOKENS A STEP", "MS ON THE CPU", "MS ON THE GPU"), times)
    before, after = found.before, found.after
    conclusion = (
        f"Threads: {after.n_threads_decode} for answers, {after.n_threads_prefill} for prompts "
        f"(before: {before.n_threads_decode} and {before.n_threads_prefill})."
    )
    if tuning.offload_min_batch is not None:
        conclusion += f" Experts come to the GPU from {tuning.offload_min_batch} tokens on."
    kept = f"Not kept, as {found.disturbed}" if found.disturbed else f"Kept in {found.path}"
    print(f"\n{conclusion}\n{kept}")


def _draw(found: "Benchmark", measured_on: str, path: Path) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure

    speed = found.plan.speed
    lengths, of_prompt = [d.n_tokens for d in found.depths], "tokens of the prompt"
    reading = [d.prefill_tok_s for d in found.depths]
    answering = [d.decode_tok_s for d in found.depths]
    panels: list[tuple[str, str, list[int], list[float], float | None]] = [
        ("Reading", of_prompt, lengths, reading, speed.prefill_tok_s),
        ("Answering", of_prompt, lengths, answering, speed.decode_tok_s),
    ]
    if widths := [w.n_streams for w in found.widths]:
        together = [w.decode_tok_s for w in found.widths]
        panels.append(("Answers at the same time", "answers, all together", widths, together, None))
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that no font here has
        figure = Figure(figsize=(4.4 * len(panels), 4), layout="constrained")
        title = f"{found.model}, {found.n_ctx:,} tokens of context"
        figure.suptitle(title, fontsize=13, fontweight="bold")
        for axis, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
            _draw_panel(axis, *panel)
        figure.supxlabel(measured_on, fontsize=8)
        is_svg = path.suffix.lower() == ".svg"
        figure.savefig(path, dpi=160, metadata={"Date": None} if is_svg else None)


def _draw_panel(
    axis: "Axes",
    name: str,
    label: str,
    counts: Sequence[int],
    rates: Sequence[float],
    expected: float | None,
) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    axis.set_title(f"{name} (tokens/s)", fontsize=10)
    axis.set_xlabel(label)
    axis.plot(counts, rates, "o-C0", label="measured", gid="measured")
    box = {"facecolor": axis.get_facecolor(), "edgecolor": "none", "pad": 0.5}
    for count, rate in zip(counts, rates, strict=True):
        text, place = words.rate(rate), (count, rate)
        axis.annotate(
            text, place, (0, 7), textcoords="offset points", ha="center", size=8, bbox=box
        )
    if expected is not None:
        text = f"expected of {_EXPECTED_TOKENS:,} tokens: {words.rate(expected)}"
        axis.plot([_EXPECTED_TOKENS], [expected], "DC1", mfc="none", label=text, gid="expected")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        rates = [*rates, expected]
    axis.set_xscale("log", base=2)
    ticks = [f"{n / 1024:,.0f}k" if n >= 4096 else f"{n:,}" for n in counts]
    axis.set_xticks(counts, ticks)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.margins(x=0.12)
    if max(rates) > _LOG_FROM * min(rates):
        axis.set_yscale("log")
        axis.set_ylim(min(rates) / 3, max(rates) * 2)
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(0, max(rates) * 1.2)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: words.rate(rate)))
