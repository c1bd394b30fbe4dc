"""`gptoss plan`: where a model would go on this or an imagined machine, and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptoss_local.cli._options import Json, ModelName, named
from gptoss_local.cli._output import print_json
from gptoss_local.errors import UsageError
from gptoss_local.quantities import parse_memory
from gptoss_local.settings import Settings, load_settings

if TYPE_CHECKING:
    from gptoss_local.hardware import Machine
    from gptoss_local.plan.facts import ModelFacts
    from gptoss_local.plan.measured import Measured
    from gptoss_local.plan.outcome import Plan

_WIDTH = 64
_SHOWN_BYTES = 50_000_000  # less is 0.0 GiB
_PARTS = (  # letter, colour, what, in the order of a bar
    ("#", "cyan", "weights"),
    ("=", "green", "cache"),
    ("+", "yellow", "compute"),
    ("o", "magenta", "CUDA or engine"),
    ("x", "red", "other programs"),
    (".", "dim", "free"),
)


def plan(
    model: ModelName,
    vram: Annotated[
        str, typer.Option(help="Imagine cards with so much, e.g. 16GiB or 16GiB,12GiB; 0 is none.")
    ] = "",
    ram: Annotated[str, typer.Option(help="Imagine so much RAM, e.g. 64GiB.")] = "",
    ctx: Annotated[int | None, typer.Option(min=1, help="Tokens of context.")] = None,
    parallel: Annotated[int | None, typer.Option(min=1, max=64, help="Answers at once.")] = None,
    gpu_layers: Annotated[
        int | None, typer.Option(min=-1, help="Layers in VRAM; -1: planned.")
    ] = None,
    cpu_moe: Annotated[
        int | None, typer.Option(min=-1, help="Layers with experts in RAM; -1: planned.")
    ] = None,
    json: Json = False,
) -> None:
    """Show how MODEL would be placed in memory, how fast it may be, and why."""
    from msgspec.structs import replace

    from gptoss_local.engine.protocol import N_DRAFT_MAX
    from gptoss_local.hardware import read_machine
    from gptoss_local.plan.measured import Measured
    from gptoss_local.plan.planner import make_plan
    from gptoss_local.plan.wishes import wishes_of
    from gptoss_local.plan.words import explain

    settings = load_settings(
        context_length=ctx, num_parallel=parallel, gpu_layers=gpu_layers, cpu_moe=cpu_moe
    )
    here = read_machine(settings.models_dir)
    name, facts, known = _facts(model, settings, here)
    machine = _imagined(here, vram, ram)
    wishes = wishes_of(settings, N_DRAFT_MAX)
    if vram or ram:
        known = Measured()
    wishes = replace(wishes, extra_margin_bytes=known.extra_margin_bytes, maps_host=known.maps_host)
    chosen = make_plan(facts, machine, wishes, known.tuning)
    reasons = explain(facts, machine, wishes, chosen, is_tuned=known.tuning is not None)
    if not (vram or ram):
        reasons += _beside(settings)
    if json:
        figures = {"request_s": chosen.speed.request_s, "is_tuned": known.tuning is not None}
        print_json(model=name, machine=machine, plan=chosen, **figures, reasons=reasons)
    else:
        _print(name, _summary(facts, chosen), machine, chosen, reasons)


def _imagined(here: "Machine", vram: str, ram: str) -> "Machine":
    """This machine with other cards or other RAM, as the flags say; empty: its own."""
    from gptoss_local.plan.imagined import imagine

    ram_bytes = parse_memory(ram, "--ram") if ram else None
    return imagine(here, _card_sizes(vram) if vram else None, ram_bytes)


def _card_sizes(text: str) -> list[int]:
    sizes = [parse_memory(part, "--vram") for part in text.split(",") if part.strip()]
    if not sizes:
        raise UsageError(f"--vram {text!r} names no size.", hint="0 is no card.")
    return [size for size in sizes if size]


def _facts(model: str, settings: Settings, here: "Machine") -> "tuple[str, ModelFacts, Measured]":
    """Facts of a model on the disk and what was measured of it, or of a large one not here yet."""
    from gptoss_local.catalog import canonical_name, known_model
    from gptoss_local.errors import ModelNotFoundError
    from gptoss_local.plan.facts import published_facts, read_facts
    from gptoss_local.plan.measured import Measured, measured_path, read_measured
    from gptoss_local.store import find_model

    try:
        entry = find_model(named(model, settings), settings)
    except ModelNotFoundError:
        known = known_model(canonical_name(model))
        if known is None or not (known.layers and known.experts):
            raise
        return known.name, published_facts(known.layers, known.experts), Measured()
    path = entry.ensure_file(settings)
    weights_id = find_model(entry.name, settings).weights_id  # an embedded model has a file now
    measured = read_measured(measured_path(settings.cache_dir, weights_id, here))
    return entry.name, read_facts(path), measured


def _beside(settings: Settings) -> list[str]:
    """What a server has in memory, which counts as taken: also the model that is planned."""
    from gptoss_local.client import Client
    from gptoss_local.errors import GptOssError

    client = Client(settings)
    try:
        models = client.get("/api/ps")["models"] if client.is_running() else []
    except GptOssError:  # another program, or a key that we lack: what it has is not told
        return []
    names = ", ".join(model["name"] for model in models)
    text = f"This is for what is free beside what the server has in memory: {names}."
    return [f"{text} `gptoss stop --all` unloads that."] if names else []


def _print(name: str, summary: str, machine: "Machine", chosen: "Plan", reasons: list[str]) -> None:
    from itertools import chain, repeat

    from rich.console import Console

    from gptoss_local.plan.placement import DeviceMemory

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{name}: {summary}\n", style="bold", markup=False)
    # a card that is of no use to the plan has a bar, too
    used = chain(chosen.placement.gpus, repeat(DeviceMemory()))
    for gpu, memory in zip(machine.gpus, used, strict=False):
        sizes = {
            "weights": memory.weights,
            "cache": memory.cache,
            "compute": memory.compute,
            "CUDA": memory.runtime,
            "other programs": gpu.total_bytes - gpu.free_bytes,
        }
        _print_bar(console, f"VRAM {gpu.index}", gpu.total_bytes, sizes, gpu.name)
    host = chosen.host
    sizes = {
        "weights": host.weights + host.mapped,
        "cache": host.cache,
        "compute": host.compute,
        "engine": host.engine,
        "other programs": machine.total_bytes - machine.available_bytes,
    }
    _print_bar(console, "RAM", machine.total_bytes, sizes, "pinned" if host.is_pinned else "")
    legend = "  ".join(f"[{colour}]{letter}[/] {what}" for letter, colour, what in _PARTS)
    console.print(f"        {legend}\n")
    for reason in reasons:
        console.print(f"- {reason}", markup=False)


def _summary(facts: "ModelFacts", chosen: "Plan") -> str:
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
    console: Any, label: str, total_bytes: int, sizes: dict[str, int], remark: str
) -> None:
    """One bar of letters: what each part takes of the whole, the rest free.

    Where the parts take more than there is, a `|` shows where the memory ends.
    """
    from rich.text import Text

    from gptoss_local.plan.words import gib

    n_bytes = sum(sizes.values())
    bar_bytes = max(total_bytes, n_bytes)
    bar, done_bytes = Text(), 0
    for part, (letter, colour, _) in zip(
        (*sizes.values(), bar_bytes - n_bytes), _PARTS, strict=True
    ):
        done_bytes += part
        bar.append(letter * (round(_WIDTH * done_bytes / bar_bytes) - len(bar)), colour)
    parts = [f"{what} {gib(part)}" for what, part in sizes.items() if part >= _SHOWN_BYTES]
    if missing_bytes := bar_bytes - total_bytes:
        end = round(_WIDTH * total_bytes / bar_bytes)
        bar = Text.assemble(bar[:end], ("|", "bold"), bar[end:])
        parts.append(f"{gib(missing_bytes)} more than there is")
    remark = f" ({remark})" if remark else ""
    console.print(Text.assemble(f"{label:<8}", bar, f" {gib(total_bytes)}{remark}"))
    console.print(f"        {', '.join(parts) or 'nothing'}")
