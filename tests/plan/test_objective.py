"""Presets: each plan is the best for its requests, and explicit settings win."""

import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.base.types import Preset
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.options import OBJECTIVES, most_answers, plan_options
from gptoss_local.machine.plan.planner import FLOOR_CTX, make_plan
from gptoss_local.machine.plan.result import Plan
from gptoss_local.machine.plan.words import changes, explain, explain_preset
from tests.plan.machines import LARGE, SMALL, gpu, machine

pytestmark = pytest.mark.quick


def plan_for(preset: Preset, facts: ModelFacts, here: Machine, **wishes: int) -> Plan:
    return make_plan(facts, here, plan_options(Settings(preset=preset, **wishes), 15))  # type: ignore[arg-type]


def test_what_is_set_wins() -> None:
    here = machine(gpu(24))
    wishes = {"num_parallel": 5, "context_length": 8192, "threads": 3}
    for preset in OBJECTIVES:
        plan = plan_for(preset, SMALL, here, **wishes)
        assert (plan.shape.n_seq, plan.shape.n_ctx) == (5, 8192)
        assert (plan.n_threads_prefill, plan.n_threads_decode) == (3, 3)
        assert most_answers(Settings(preset=preset, num_parallel=5)) == 5
    assert [most_answers(Settings(preset=preset)) for preset in OBJECTIVES] == [4, 2, 16, 4]


def test_one_person_gets_more_experts_in_vram() -> None:
    """For which context makes way, but not below the first context of agents."""
    here = machine(gpu(16, 15.5))
    balanced, latency = (plan_for(name, LARGE, here) for name in ("balanced", "latency"))
    assert latency.vram_share > balanced.vram_share
    assert latency.speed.decode_tok_s > balanced.speed.decode_tok_s
    assert latency.speed.prefill_tok_s > balanced.speed.prefill_tok_s
    assert balanced.shape.n_ctx > latency.shape.n_ctx >= FLOOR_CTX


@pytest.mark.parametrize(("card", "n_fitting"), [(gpu(24), 16), (gpu(12, 11.4), 14)])
def test_many_requests_have_room(card: Gpu, n_fitting: int) -> None:
    """Also where that brings experts to RAM: a step of many sequences shares them."""
    here = machine(card)
    balanced, plan = (plan_for(n, SMALL, here) for n in ("balanced", "throughput"))
    assert plan.shape.n_seq == 16
    assert plan.shape.n_ctx >= n_fitting * (4096 + 512)
    assert balanced.speed.write_s > 1.3 * plan.speed.write_s
    assert changes(balanced, plan)["n_seq"] == (4, 16)
    (line,) = explain_preset("throughput", SMALL, balanced, plan)
    assert line.startswith("The preset throughput changes answers at the same time (4 to 16)")
    options = plan_options(Settings(preset="throughput"), 15)
    reasons = " ".join(explain(SMALL, here, options, plan))
    assert f"s for {n_fitting} requests at the same time, of 4,096 tokens read and 512" in reasons


@pytest.mark.parametrize("facts", [SMALL, LARGE])
def test_half_of_the_cores_compute_quietly(facts: ModelFacts) -> None:
    for here in (machine(), machine(gpu(16, 15.5))):
        balanced, quiet = (plan_for(name, facts, here) for name in ("balanced", "quiet"))
        assert quiet.n_threads_prefill == balanced.n_threads_prefill // 2 == 4
        assert quiet.n_threads_decode == balanced.n_threads_decode // 2 == 4
        lines = explain_preset("quiet", facts, quiet, quiet)
        assert lines[0] == "The preset quiet changes nothing here."
        assert ("nvidia-smi --power-limit" in lines[-1]) is quiet.uses_gpu
    assert plan_for("quiet", facts, machine(n_cores=1, n_performance_cores=1)).n_threads_decode == 1
