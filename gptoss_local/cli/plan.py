"""`gptoss plan`: where a model would go on this or an imagined machine, and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptoss_local.cli._options import Json, ModelName, named
from gptoss_local.cli._output import print_json
from gptoss_local.errors import UsageError
from gptoss_local.quantities import parse_size
from gptoss_local.settings import Settings, load_settings

if TYPE_CHECKING:
    from gptoss_local.hardware import Machine
    from gptoss_local.plan.facts import ModelFacts
    from gptoss_local.plan.measured import Measured
    from gptoss_local.plan.outcome import Plan

_WIDTH = 64
_PARTS = (  # letter, colour, what
    ("#", "cyan", "weights"),
    ("=", "green", "cache"),
    ("+", "yellow", "compute"),
    ("o", "magenta", "CUDA, engine"),
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
    gpu_layers: Annotated[int | None, typer.Option(help="Layers in VRAM; -1: planned.")] = None,
    cpu_moe: Annotated[
        int | None, typer.Option(help="Layers with experts in RAM; -1: planned.")
    ] = None,
    json: Json = False,
) -> None:
    """Show how MODEL would be placed in memory, how fast it may be, and why."""
    from msgspec.structs import replace

    from gptoss_local.engine.protocol import N_DRAFT_MAX
    from gptoss_local.hardware import read_machine
    from gptoss_local.plan.imagined import imagine
    from gptoss_local.plan.measured import Measured
    from gptoss_local.plan.planner import make_plan
    from gptoss_local.plan.wishes import wishes_of
    from gptoss_local.plan.words import explain

    settings = load_settings(
        context_length=ctx, num_parallel=parallel, gpu_layers=gpu_layers, cpu_moe=cpu_moe
    )
    here = read_machine(settings.models_dir)
    name, facts, known = _facts(model, settings, here)
    machine = imagine(
        here,
        _card_sizes(vram) if vram else None,
        _imagined_size(ram, "--ram") if ram else None,
    )
    wishes = wishes_of(settings, N_DRAFT_MAX)
    if vram or ram:
        known = Measured()
    wishes = replace(wishes, extra_margin_bytes=known.extra_margin_bytes, maps_host=known.maps_host)
    chosen = make_plan(facts, machine, wishes, known.tuning)
    reasons = explain(facts, machine, wishes, chosen, is_tuned=known.tuning is not None)
    if json:
        print_json(model=name, machine=machine, plan=chosen, reasons=reasons)
    else:
        _print(name, machine, chosen, reasons)


def _card_sizes(text: str) -> list[int]:
    sizes = [_imagined_size(part, "--vram") for part in text.split(",") if part.strip()]
    return [size for size in sizes if size]


def _imagined_size(text: str, source: str) -> int:
    size = parse_size(text, source)
    if 0 < size < 1_000_000:  # no memory is so small, but GiB are easily forgotten
        raise UsageError(f"{source} {text!r} is {size} bytes.", hint=f"Write {text.strip()}GiB.")
    return size


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


def _print(name: str, machine: "Machine", chosen: "Plan", reasons: list[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{name}: {_summary(chosen)}\n", style="bold")
    for gpu, memory in zip(machine.usable_gpus, chosen.placement.gpus, strict=False):
        others = gpu.total_bytes - gpu.free_bytes
        sizes = (memory.weights, memory.cache, memory.compute, memory.runtime, others)
        _print_bar(console, f"VRAM {gpu.index}", gpu.total_bytes, sizes, gpu.name)
    host = chosen.host
    others = machine.total_bytes - machine.available_bytes
    sizes = (host.weights + host.mapped, host.cache, host.compute, host.engine, others)
    _print_bar(console, "RAM", machine.total_bytes, sizes, "pinned" if host.is_pinned else "")
    legend = "  ".join(f"[{colour}]{letter}[/] {what}" for letter, colour, what in _PARTS)
    console.print(f"        {legend}\n")
    for reason in reasons:
        console.print(f"- {reason}", markup=False)


def _summary(chosen: "Plan") -> str:
    where = "GPU" if chosen.uses_gpu else "CPU"
    if chosen.uses_gpu and chosen.vram_share < 1:
        where = "GPU, experts partly in RAM" if chosen.placement.shares_experts else "GPU and CPU"
    n_prefill, n_decode = chosen.n_threads_prefill, chosen.n_threads_decode
    return (
        f"{where}, {chosen.shape.n_ctx:,} tokens of context, batches of {chosen.shape.n_batch}, "
        f"{n_prefill} thread{'s' * (n_prefill > 1)} for prompts and {n_decode} for answers"
    )


def _print_bar(
    console: Any, label: str, total_bytes: int, sizes: tuple[int, ...], remark: str
) -> None:
    """One bar of letters: what each part takes of the whole, the rest free."""
    from rich.markup import escape

    from gptoss_local.plan.words import gib

    bar, n_used, done_bytes = "", 0, 0
    for n_bytes, (letter, colour, _) in zip((*sizes, total_bytes), _PARTS, strict=True):
        done_bytes = min(total_bytes, done_bytes + n_bytes)
        n = round(_WIDTH * done_bytes / total_bytes) - n_used
        n_used += n
        bar += f"[{colour}]{letter * n}[/]"
    parts = (
        f"{what} {gib(n_bytes)}"
        for n_bytes, (_, _, what) in zip(sizes, _PARTS, strict=False)
        if n_bytes >= 50_000_000
    )
    remark = f" ({remark})" if remark else ""
    console.print(f"{label:<8}{bar} {gib(total_bytes)}{escape(remark)}")
    console.print(f"        {', '.join(parts) or 'nothing'}")
