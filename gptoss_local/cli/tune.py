"""`gptoss tune`: measure a model here once, for better plans and quicker loads."""

from typing import TYPE_CHECKING

from gptoss_local.cli._measuring import unload, warn_if_busy
from gptoss_local.cli._options import Json, ModelName, Quiet, named
from gptoss_local.cli._output import print_json, print_table, progress_bar
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.runner.tuning import TuneResult


def tune(model: ModelName, json: Json = False, quiet: Quiet = False) -> None:
    """Measure MODEL on this machine once, for better plans and quicker loads.

    A server that has MODEL in memory unloads it first.
    """
    import asyncio

    from gptoss_local.models.store import find_model
    from gptoss_local.runner.tuning import tune as measure

    settings = load_settings()
    entry = find_model(named(model, settings), settings)
    n_bytes = entry.ensure_file(settings).stat().st_size
    unload(entry.name, settings)
    is_quiet = quiet or json
    warn_if_busy()
    with progress_bar(tenths=True, quiet=is_quiet) as bar:

        def loading(fraction: float) -> None:
            bar(f"loading {entry.name} to measure it", round(fraction * n_bytes), n_bytes)

        found = asyncio.run(measure(entry, settings, loading))
    if json:
        print_json(tuning=found)
    else:
        _print(found)


def _print(found: "TuneResult") -> None:
    print(f"{found.model}: measured in {found.seconds:.1f} s\n")
    tuning, steps = found.measured.tuning, found.measured.steps
    if tuning is None:
        raise RuntimeError("tuning ends with its figures")
    prefill = dict(tuning.prefill)
    rows = [
        (str(n), f"{rate:,.1f}", f"{prefill[n]:,.0f}" if n in prefill else "")
        for n, rate in tuning.decode
    ]
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
    print(f"\n{_conclusion(found)}\nKept in {found.path}")


def _conclusion(found: "TuneResult") -> str:
    before, after = found.before, found.after
    text = (
        f"Threads: {after.n_threads_decode} for answers, {after.n_threads_prefill} for prompts "
        f"(before: {before.n_threads_decode} and {before.n_threads_prefill})."
    )
    tuning = found.measured.tuning
    if tuning is not None and tuning.offload_min_batch is not None:
        text += f" Experts come to the GPU from {tuning.offload_min_batch} tokens on."
    return text
