"""Measures a model on this machine, and keeps what follows from it for plans."""

import logging
import os
from pathlib import Path

import msgspec

from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Load, Tuned
from gptoss_local.errors import EngineError
from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from gptoss_local.machine.plan.measured import (
    Measured,
    Tuning,
    best_threads,
    break_even,
    write_measured,
)
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import read_info
from gptoss_local.runner.loads import LoadProgress

_log = logging.getLogger("gptoss")

_MANY = 128  # tokens that use nearly all experts


def is_due(plan: Plan, known: Measured) -> bool:
    """Return whether a load should begin with `calibrate`: the first with a GPU and experts in RAM.

    Not if the user has set the number of tokens from which the experts come over.
    """
    is_told = "GGML_OP_OFFLOAD_MIN_BATCH" in os.environ
    is_tried = known.tuning is not None or known.tuning_failed
    return plan.placement.shares_experts and not is_tried and not is_told


async def calibrate(
    plan: Plan, load: Load, known: Measured, known_path: Path, progress: LoadProgress
) -> Measured:
    """Measure in a few seconds what a plan cannot know: from how many tokens a GPU is faster.

    A failure does not keep the model from loading; only the failure is remembered then.
    """
    path = Path(load.model_path)
    progress.begin_measuring(read_info(path).size_bytes)
    load = msgspec.structs.replace(load, budget_bytes={})  # its contexts are smaller
    try:
        tuned = await EngineClient.tune(load, what="offload", on_progress=progress.report)
    except EngineError as error:
        _log.warning(
            "%s could not be measured (%s); `gptoss tune` tries again", path.name, error.message
        )
        known = msgspec.structs.replace(known, tuning_failed=True)
    else:
        tuning = judge(read_facts(path), plan, tuned)
        _log.info("experts come to the GPU from %s tokens on", tuning.offload_min_batch)
        known = msgspec.structs.replace(known, tuning=tuning)
    keep(known_path, known)
    return known


def keep(path: Path, known: Measured) -> None:
    """Write it to the disk; a failure does not keep the model from loading."""
    try:
        write_measured(path, known)
    except OSError as error:
        _log.warning("%s cannot be written: %s", path, error)


def judge(facts: ModelFacts, plan: Plan, tuned: Tuned) -> Tuning:
    """Draw the consequences of measured figures.

    `plan`, made without any tuning, is the one that was measured.
    """
    n_decode, decode_tok_s = best_threads(tuned.decode, plan.n_threads_decode)
    n_prefill, prefill_tok_s = best_threads(tuned.prefill, plan.n_threads_prefill)
    min_batch = break_even(tuned.offload, facts.n_experts_used)
    if min_batch == 1:  # answers, too, are computed with experts that come to the GPU
        decode_tok_s = max(decode_tok_s, 1 / tuned.offload[0][2])
    return Tuning(
        uses_gpu=plan.uses_gpu,
        decode=tuned.decode,
        prefill=tuned.prefill,
        n_threads_decode=n_decode,
        n_threads_prefill=n_prefill,
        decode_factor=decode_tok_s / plan.speed.decode_tok_s,
        prefill_factor=prefill_tok_s / plan.speed.prefill_tok_s,
        offload=tuned.offload,
        offload_min_batch=min_batch,
        link_bytes_s=_link_bytes_s(facts, plan, tuned),
    )


def _link_bytes_s(facts: ModelFacts, plan: Plan, tuned: Tuned) -> float | None:
    """Bytes a second of experts on their way to the GPU, including its computing."""
    n_bytes = plan.placement.expert_bytes_on_host(facts)
    rates = [n_bytes / gpu_s for n, _, gpu_s in tuned.offload if n >= _MANY]
    return max(rates, default=None)
