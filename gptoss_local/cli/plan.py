"""`gptoss plan`: where this or an imagined machine would keep a model, and why."""

import contextlib
from itertools import chain, repeat
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.text import Text

from gptoss_local.base.errors import (
    DoesNotFitError,
    GptOssError,
    ModelNotFoundError,
    UsageError,
)
from gptoss_local.base.quantities import parse_memory
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.cli._console import CleanConsole
from gptoss_local.cli._options import Context, Json, ModelName, Parallel, entry_to_read, number
from gptoss_local.cli._output import print_json
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.machine.hardware import Machine, read_machine
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.facts import ModelFacts, published_facts, read_facts
from gptoss_local.machine.plan.hypothetical import card_of_size, cards_named, imagine
from gptoss_local.machine.plan.measured import Measured, measured_path, read_measured
from gptoss_local.machine.plan.nearest import nearest
from gptoss_local.machine.plan.options import PlanOptions, plan_options
from gptoss_local.machine.plan.placement import DeviceMemory
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.result import Plan
from gptoss_local.machine.plan.words import changes, explain, explain_nearest, explain_preset, gib
from gptoss_local.models.catalog import canonical_name, known_model
from gptoss_local.models.store import find_model

_WIDTH, _N_LABEL, _N_SIZE = 64, 8, 11  # of a bar, before it, after it: ` 1,024.0 GiB` at most
_N_LEGEND = 86
_SHOWN_BYTES = 50_000_000  # less is 0.0 GiB
_PARTS = (  # letter, colour, name, in the order of a bar
    ("#", "cyan", "weights"),
    ("=", "green", "cache"),
    ("+", "yellow", "compute"),
    ("o", "magenta", "driver or engine"),
    ("x", "red", "other programs"),
    (".", "dim", "free"),
)


def plan(
    model: ModelName,
    vram: Annotated[
        str | None,
        typer.Option(help="Imagine GPUs of this size, e.g. 16GiB or 16GiB,12GiB; 0: none."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="CARD,...", help='Imagine these GPUs, e.g. "RTX 5070 Ti".')
    ] = None,
    ram: Annotated[str | None, typer.Option(help="Imagine this much RAM, e.g. 64GiB.")] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Imagine this many physical cores.")
    ] = None,
    bandwidth: Annotated[
        float | None, number("--bandwidth", 1, "Imagine RAM this fast, in GB/s, e.g. 90.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Plan for latency, throughput or quiet.")
    ] = None,
    ctx: Context = None,
    parallel: Parallel = None,
    gpu_layers: Annotated[
        int | None, typer.Option(min=-1, help="Layers in VRAM; -1: planned.")
    ] = None,
    cpu_moe: Annotated[
        int | None, typer.Option(min=-1, help="Layers with experts in RAM; -1: planned.")
    ] = None,
    kv_type: Annotated[
        str | None, typer.Option(help="Type of cached keys and values: f16, q8_0, q4_0.")
    ] = None,
    json: Json = False,
) -> None:
    settings = load_settings(
        context_length=ctx,
        num_parallel=parallel,
        gpu_layers=gpu_layers,
        cpu_moe=cpu_moe,
        kv_type=kv_type,
        preset=preset,
    )
    cards = _cards(gpu, vram)
    n_ram_bytes = None if ram is None else parse_memory(ram, "--ram")
    if ram and any(card.shares_ram for card in cards or ()):
        raise UsageError("--ram: this board has one memory for both", hint="Leave --ram out.")
    here = read_machine(settings.models_dir)
    name, facts, known = _facts(model, settings, here)
    is_imagined = bool(vram or gpu or ram or cores or bandwidth)
    known = Measured() if is_imagined else known
    machine, assumed = imagine(
        here,
        cards,
        n_ram_bytes,
        n_cores=cores,
        ram_bytes_s=bandwidth and bandwidth * 1e9,
    )
    options, chosen = _choose(settings, facts, machine, known)
    is_tuned = known.tuning is not None
    reasons = explain(facts, machine, options, chosen, is_tuned=is_tuned)
    near = nearest(facts, machine, options, chosen)
    if near:
        reasons.insert(1, explain_nearest(near, chosen, name))
    balanced = chosen
    if settings.preset != "balanced":
        usual = replace(settings, preset="balanced")
        with contextlib.suppress(DoesNotFitError):  # as it may, with more answers at a time
            balanced = _choose(usual, facts, machine, known)[1]
            reasons += explain_preset(settings.preset, facts, balanced, chosen)
    if assumed:
        reasons.insert(0, _assumption(assumed))
    elif not is_imagined:
        reasons += _beside(settings)
    if json:
        print_json(
            model=name,
            preset=settings.preset,
            preset_changes=changes(balanced, chosen),
            machine=machine,
            assumed=assumed,
            plan=chosen,
            request_s=chosen.speed.request_s,
            is_tuned=is_tuned,
            nearest=near,
            reasons=reasons,
        )
    else:
        _print(name, _summary(facts, chosen), machine, chosen, reasons)


def _assumption(assumed: list[str]) -> str:
    *most, last = assumed
    parts = f"{', '.join(most)} and {last}" if most else last
    return f"Assumed for the imagined machine: {parts}. --cores and --bandwidth change that."


def _choose(
    settings: Settings, facts: ModelFacts, machine: Machine, known: Measured
) -> tuple[PlanOptions, Plan]:
    options = plan_options(settings, N_DRAFT_MAX, attempt=known.attempt)
    return options, make_plan(facts, machine, options, known.tuning)


def _cards(gpu: str | None, vram: str | None) -> list[Gpu] | None:
    if gpu is not None and vram is not None:
        raise UsageError("--gpu and --vram both name the GPUs", hint="Give one of them.")
    if (given := vram if gpu is None else gpu) is None:
        return None
    if not (parts := [part for part in given.split(",") if part.strip()]):
        what = "--gpu names no card" if vram is None else "--vram names no size"
        raise UsageError(what, hint="--vram 0 means no card.")
    if vram is None:
        return [card for part in parts for card in cards_named(part)]
    return [card_of_size(size) for part in parts if (size := parse_memory(part, "--vram"))]


def _facts(model: str, settings: Settings, here: Machine) -> tuple[str, ModelFacts, Measured]:
    try:
        entry = entry_to_read(model, settings)
    except ModelNotFoundError:
        known = known_model(canonical_name(model))
        if known is None or not (known.layers and known.experts):
            raise
        return known.name, published_facts(known.layers, known.experts), Measured()
    path = entry.ensure_file(settings)
    if entry.embedded:
        entry = find_model(entry.name, settings)  # it has a file now
    measured = read_measured(measured_path(settings.cache_dir, entry.weights_id, here))
    return entry.name, read_facts(path, entry.adapter), measured


def _beside(settings: Settings) -> list[str]:
    from gptoss_local.api.client import Client  # PERF: 60 ms, of a Tab

    client = Client(settings)
    try:
        models = client.running_models() if client.is_running() else []
    except GptOssError:  # another program, or a key that we lack
        return []
    names = ", ".join(model.name for model in models)
    text = f"This plan uses only what is free while the server has these in memory: {names}."
    return [f"{text} `gptoss stop --all` unloads that."] if names else []


def _print(name: str, summary: str, machine: Machine, chosen: Plan, reasons: list[str]) -> None:
    console = CleanConsole()
    console.print_item("", Text(f"{name}: {summary}\n", "bold"))
    # a card that is of no use to the plan has a bar, too
    used = chain(chosen.placement.gpus, repeat(DeviceMemory()))
    for gpu, memory in zip(machine.gpus, used, strict=False):
        sizes = {
            "weights": memory.weights,
            "cache": memory.cache,
            "compute": memory.compute,
            "driver": memory.runtime,
            "other programs": gpu.total_bytes - gpu.free_bytes,
        }
        _print_bar(console, f"VRAM {gpu.index}", gpu.total_bytes, sizes, gpu.name)
    host = chosen.host
    sizes = {
        "weights": host.weights + host.mapped,
        "cache": host.cache,
        "compute": host.compute,
        "engine": host.engine + host.checkpoints,
        "other programs": machine.total_bytes - machine.available_bytes,
    }
    _print_bar(console, "RAM", machine.total_bytes, sizes, "pinned" if host.is_pinned else "")
    signs = [Text.assemble((sign, colour), f" {what}") for sign, colour, what in _PARTS]
    n_row = len(signs) // 2 if console.file.isatty() and console.width < _N_LEGEND else len(signs)
    for row in filter(None, (signs[:n_row], signs[n_row:])):
        console.print_item(" " * _N_LABEL, Text("  ").join(row))
    console.print()
    for reason in reasons:
        console.print_item("- ", reason)


def _summary(facts: ModelFacts, chosen: Plan) -> str:
    where = "GPU" if chosen.uses_gpu else "CPU"
    if chosen.uses_gpu and chosen.placement.n_host_layers(facts):
        where += " and CPU"
    if chosen.placement.shares_experts:
        where += ", experts partly in RAM"
    n_prefill, n_decode = chosen.n_threads_prefill, chosen.n_threads_decode
    return (
        f"{where}, {chosen.shape.n_ctx:,} tokens of context, batches of {chosen.shape.n_batch:,}, "
        f"{n_prefill} thread{'s' * (n_prefill > 1)} for prompts and {n_decode} for answers"
    )


def _print_bar(
    console: CleanConsole, label: str, total_bytes: int, sizes: dict[str, int], remark: str
) -> None:
    """Print the parts and the free rest as letters; `|` marks the end of a memory too small."""
    n_bytes = sum(sizes.values())
    bar_bytes = max(total_bytes, n_bytes)
    n_cells = min(_WIDTH, console.width - _N_LABEL - _N_SIZE) if console.file.isatty() else _WIDTH
    bar, done_bytes = Text(), 0
    for part, (letter, colour, _) in zip(
        (*sizes.values(), bar_bytes - n_bytes), _PARTS, strict=True
    ):
        done_bytes += part
        bar.append(letter * (round(n_cells * done_bytes / bar_bytes) - len(bar)), colour)
    parts = [f"{what} {gib(part)}" for what, part in sizes.items() if part >= _SHOWN_BYTES]
    if missing_bytes := bar_bytes - total_bytes:
        end = round(n_cells * total_bytes / bar_bytes)
        bar = Text.assemble(bar[:end], ("|", "bold"), bar[end:])
        parts.append(f"{gib(missing_bytes)} more than available")
    remark = f" ({remark})" if remark else ""
    console.print_item(f"{label:<{_N_LABEL}}", Text.assemble(bar, f" {gib(total_bytes)}{remark}"))
    console.print_item(" " * _N_LABEL, ", ".join(parts) or "nothing")
