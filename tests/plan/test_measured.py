"""Measurements of a machine: their file, and their use in plans."""

import time
from pathlib import Path

import msgspec
import pytest

from gptoss_local.base.types import OffloadTimes
from gptoss_local.machine.plan.measured import (
    Measured,
    Steps,
    Tuning,
    best_threads,
    break_even,
    measured_path,
    plan_id,
    read_measured,
    write_measured,
)
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.words import explain
from tests.plan.machines import LARGE, SMALL, gpu, machine

pytestmark = pytest.mark.quick

TUNING = Tuning(
    uses_gpu=True,
    decode=((6, 20.0), (8, 18.0)),
    prefill=((6, 90.0), (8, 100.0)),
    n_threads_decode=6,
    n_threads_prefill=7,
    decode_factor=0.5,
    prefill_factor=2.0,
    offload=((32, 1.0, 2.0), (64, 3.0, 2.0)),
    offload_min_batch=43,
    link_bytes_s=2e10,
)


@pytest.mark.parametrize(
    ("offload", "n_tokens"),
    [
        ((), None),
        (((32, 1.0, 2.0), (64, 3.0, 2.0)), 48),
        (((32, 3.0, 2.0), (64, 6.0, 2.0)), 32),
        (((32, 1.0, 2.0), (64, 1.5, 2.0)), 128),
        (((32, 3.0, 2.0), (64, 1.0, 2.0), (128, 5.0, 2.0)), 80),
        (((4, 1.0, 2.0), (8, 3.0, 2.0), (16, 9.0, 2.0), (32, None, 2.0)), 6),
        (((4, 9.0, 2.0), (8, None, 2.0)), 5),
        (((1, 2.1, 2.0), (8, 9.0, 2.0)), 5),
        (((1, 2.3, 2.0), (8, 9.0, 2.0)), 1),
    ],
)
def test_break_even(offload: OffloadTimes, n_tokens: int | None) -> None:
    """Where the lines cross for the last time, but not where a token's biases go back and forth."""
    assert break_even(offload, n_experts_used=4) == n_tokens


def test_planned_threads_are_kept_unless_others_are_notably_better() -> None:
    assert best_threads(((4, 10.0), (8, 10.3)), 4) == (4, 10.0)
    assert best_threads(((4, 10.0), (8, 11.0)), 4) == (8, 11.0)
    assert best_threads(((4, 10.0), (8, 9.0)), 16) == (4, 10.0)


def test_plans_use_what_was_measured() -> None:
    here = machine(gpu(16, 15.5))
    plain, tuned = make_plan(LARGE, here), make_plan(LARGE, here, tuning=TUNING)
    assert (tuned.n_threads_decode, tuned.n_threads_prefill) == (6, 7)
    assert tuned.speed.offload_min_batch == 43
    words = " ".join(explain(LARGE, here, PlanOptions(), tuned, is_tuned=True))
    assert "Steps of 43 tokens or more" in words
    assert "corrected by what was measured" in words
    assert "until its first load has" in " ".join(explain(LARGE, here, PlanOptions(), plain))
    again = make_plan(LARGE, here, PlanOptions(n_ctx=plain.shape.n_ctx), TUNING)
    if again.placement == plain.placement and again.shape == plain.shape:
        assert again.speed.decode_tok_s == pytest.approx(plain.speed.decode_tok_s / 2)
        assert again.speed.prefill_tok_s == pytest.approx(plain.speed.prefill_tok_s * 2)
    wished = make_plan(LARGE, here, PlanOptions(n_threads=5), TUNING)
    assert (wished.n_threads_decode, wished.n_threads_prefill) == (5, 5)
    on_cpu = make_plan(LARGE, here, PlanOptions(n_gpu_layers=0), TUNING)
    assert (on_cpu.n_threads_decode, on_cpu.n_threads_prefill) == (8, 8)


def test_files(tmp_path: Path) -> None:
    here = machine(gpu(16))
    path = measured_path(tmp_path, "weights", here)
    assert read_measured(path) == Measured()
    measured = Measured(tuning=TUNING)
    write_measured(path, measured)
    assert read_measured(path) == measured
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    later = msgspec.structs.replace(here, available_bytes=1, gpus=(gpu(16, 3),))
    assert measured_path(tmp_path, "weights", later) == path
    for other in (machine(gpu(12)), machine()):
        assert measured_path(tmp_path, "weights", other) != path
    assert measured_path(tmp_path, "other", here) != path
    for text in ("", "[]", path.read_text()[:-9], '{"version": 1}'):
        path.write_text(text)
        assert read_measured(path) == Measured()


def test_steps_hold_for_their_plan_and_a_week() -> None:
    plan = make_plan(SMALL, machine(gpu(16)))
    steps = Steps(
        plan_id=plan_id(plan), measured_at_s=time.time() - 60, seconds=((1, 0.01),), switch_s=0.0
    )
    assert steps.are_of(plan)
    assert not steps.are_of(make_plan(SMALL, machine(gpu(16)), PlanOptions(n_ctx=8192)))
    sooner = msgspec.structs.replace(plan.speed, offload_min_batch=1)
    assert not steps.are_of(msgspec.structs.replace(plan, speed=sooner))
    for threads in ("n_threads_prefill", "n_threads_decode"):
        assert not steps.are_of(msgspec.structs.replace(plan, **{threads: 99}))
    old = msgspec.structs.replace(steps, measured_at_s=time.time() - 8 * 86_400)
    assert not old.are_of(plan)
