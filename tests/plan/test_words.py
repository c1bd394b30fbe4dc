"""A plan's reasons, in sentences: they are of this plan, and each wish is in them."""

import pytest

from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.words import explain
from tests.plan.machines import GIB, SMALL, gpu, machine

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "options",
    [
        PlanOptions(n_gpu_layers=20),
        PlanOptions(n_cpu_moe=3),
        PlanOptions(n_gpu_layers=0, n_cpu_moe=3),
    ],
)
def test_wishes_that_have_no_effect_are_named(options: PlanOptions) -> None:
    here = machine()
    assert "no effect" in explain(SMALL, here, options, make_plan(SMALL, here, options))[0]
    assert "no effect" not in explain(SMALL, here, PlanOptions(), make_plan(SMALL, here))[0]


def test_layers_on_the_host_and_experts_in_ram_are_told_apart() -> None:
    """Of 24 layers 15 are on the host, and of 5 more the experts; the sizes are of each alone."""
    here, options = machine(gpu(16)), PlanOptions(n_gpu_layers=10, n_cpu_moe=20)
    host, experts, *_ = explain(SMALL, here, options, make_plan(SMALL, here, options))
    assert host == "The first 15 of 24 layers are on the host, as requested."
    assert experts.startswith("Attention, cache and head of the others are in VRAM; the experts")
    assert "of 5 of 24 layers, 2.0 GiB, are in RAM, as requested" in experts


def test_a_limit_of_vram_is_named_where_it_decides() -> None:
    here = machine(gpu(16))

    def first_reason(vram_gib: float) -> str:
        options = PlanOptions(vram_bytes=round(vram_gib * GIB))
        return explain(SMALL, here, options, make_plan(SMALL, here, options))[0]

    assert "as no more than 8.0 GiB of a GPU may be used" in first_reason(8)
    assert first_reason(1).startswith("1.0 GiB of each GPU, as requested, is too small")
    assert "may be used" not in first_reason(99)


def test_a_card_that_is_left_out_is_named() -> None:
    here = machine(gpu(24), gpu(2, index=1))
    reasons = explain(SMALL, here, PlanOptions(), make_plan(SMALL, here))
    assert "GPU 1 (card 1) is left out: too small, or slower than without it." in reasons


@pytest.mark.parametrize(
    ("n_ctx", "text"),
    [(8192, "as requested"), (5000, "5,000 were requested; it grows by 256"), (10**6, "the most")],
)
def test_a_wished_context_is_explained(n_ctx: int, text: str) -> None:
    here, options = machine(gpu(16)), PlanOptions(n_ctx=n_ctx)
    assert text in explain(SMALL, here, options, make_plan(SMALL, here, options))[1]
