"""Machines that are not a PC with a card: shared memory, cards of several ages, little RAM."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptoss_local.base.errors import DoesNotFitError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import FLOOR_CTX, make_plan
from gptoss_local.machine.plan.words import explain
from tests.plan.machines import FACTS, GIB, LARGE, MIB, SMALL, gpu, machine, try_plan

pytestmark = pytest.mark.quick


def test_a_gpu_with_the_systems_ram_has_the_whole_model() -> None:
    """GB10: 120b is in the one memory that there is, once."""
    here = machine(gpu(119, 112, shares_ram=True), ram_gib=119, available_bytes=112 * GIB)
    plan = make_plan(LARGE, here)
    assert plan.vram_share > 0.999
    assert plan.shape.n_ctx == 131_072


@pytest.mark.parametrize(
    ("name", "ram_gib", "facts", "n_bytes_s"),
    [
        ("NVIDIA GB10", 119, LARGE, 273),
        ("NVIDIA Thor", 122, LARGE, 273),
        ("Orin (nvgpu)", 61, SMALL, 100),
    ],
)
def test_boards_with_one_memory(name: str, ram_gib: int, facts: ModelFacts, n_bytes_s: int) -> None:
    """As NVML describes them: it knows no bandwidth, cores or link. No card's is assumed."""
    nothing = dict.fromkeys(("bandwidth_bytes_s", "pcie_generation", "pcie_width", "n_cores"))
    board = gpu(ram_gib, ram_gib - 6, shares_ram=True, **nothing)
    board = msgspec.structs.replace(board, name=name)
    here = machine(
        board,
        ram_gib=ram_gib,
        available_bytes=(ram_gib - 6) * GIB,
        has_avx2=None,
        arm_features=("dotprod", "i8mm"),
    )
    plan = make_plan(facts, here)
    assert plan.vram_share > 0.999
    assert f"{name}: memory of {n_bytes_s} GB/s" in plan.speed.assumed
    assert not any("PCIe" in each for each in plan.speed.assumed)
    on_gpu = sum(memory.total for memory in plan.placement.gpus)
    assert on_gpu + plan.host.total - plan.host.mapped <= here.available_bytes


def test_shared_ram_needs_no_link() -> None:
    """Experts that are on the host on demand are in the same memory."""
    options = PlanOptions(n_cpu_moe=24)
    boards = [gpu(64, 58, shares_ram=shares) for shares in (True, False)]
    boards = [msgspec.structs.replace(each, pcie_width=1) for each in boards]
    shared, card = (
        make_plan(SMALL, machine(each, ram_gib=64, available_bytes=58 * GIB), options)
        for each in boards
    )
    assert shared.speed.prefill_tok_s > 3 * card.speed.prefill_tok_s


@pytest.mark.parametrize(
    ("arm_features", "copies"), [(("dotprod",), True), (("bf16",), False), (None, True)]
)
def test_what_an_arm_processor_copies(arm_features: tuple[str, ...] | None, copies: bool) -> None:
    """llama.cpp has an order of its own for dotprod; without, a copy would be a waste."""
    plan = make_plan(SMALL, machine(ram_gib=64, has_avx2=None, arm_features=arm_features))
    assert (plan.host.weights > 0) is copies


@given(FACTS, st.integers(4, 128), st.floats(0.5, 0.97))
def test_shared_ram_is_taken_once(facts: ModelFacts, ram_gib: int, share: float) -> None:
    free = ram_gib * share
    here = machine(
        gpu(ram_gib, free, shares_ram=True), ram_gib=ram_gib, available_bytes=round(free * GIB)
    )
    plan = try_plan(facts, here, PlanOptions())
    if plan is not None and plan.uses_gpu:
        on_gpu = sum(memory.total for memory in plan.placement.gpus)
        assert on_gpu + plan.host.total - plan.host.mapped <= here.available_bytes


def test_a_card_without_code_is_left_out() -> None:
    """A GTX 1080 next to an RTX 3060, and CUDA 13."""
    old, new = gpu(8, index=0, compute_capability=(6, 1)), gpu(12, index=1)
    plan = make_plan(SMALL, machine(old, new, cuda_build=13))
    assert plan.placement.layers_per_gpu[0] == 0
    assert plan.devices == ("CUDA1",)
    both = make_plan(SMALL, machine(old, new, cuda_build=12))
    assert both.devices == ("CUDA0", "CUDA1")
    text = " ".join(explain(SMALL, machine(old, new, cuda_build=13), PlanOptions(), plan))
    assert "CUDA 13 here, which has no code for compute capability 6.1" in text


def test_a_card_without_code_alone_leaves_the_cpu() -> None:
    here = machine(gpu(8, compute_capability=(6, 1)), cuda_build=13)
    plan = make_plan(SMALL, here)
    assert not plan.uses_gpu
    assert "no code for compute capability 6.1" in " ".join(
        explain(SMALL, here, PlanOptions(), plan)
    )


def little(short_bytes: int) -> Machine:
    """A machine without GPUs that has so much less than 20b with 512 MiB of checkpoints takes."""
    plan = make_plan(SMALL, machine(ram_gib=64, has_avx2=False))
    needed = plan.host.total - plan.host.mapped
    half = plan.host.total // 2
    return machine(available_bytes=max(needed, half) - short_bytes, ram_gib=64, has_avx2=False)


@pytest.mark.parametrize("short_mib", [1, 100, 255])
def test_checkpoints_shrink_before_context_and_before_a_refusal(short_mib: int) -> None:
    here = little(short_mib * MIB)
    plan = make_plan(SMALL, here)
    assert plan.shape.n_ctx == FLOOR_CTX
    assert 0 <= plan.host.checkpoints < 512 * MIB


def test_checkpoints_that_are_wished_do_not_shrink() -> None:
    here = little(200 * MIB)
    wished = PlanOptions(checkpoint_bytes=512 * MIB)
    assert make_plan(SMALL, here, wished).shape.n_ctx < FLOOR_CTX
    with pytest.raises(DoesNotFitError, match=r"room for .* bytes of checkpoints"):
        make_plan(SMALL, here, PlanOptions(checkpoint_bytes=64 * GIB))


def test_checkpoints_are_as_many_as_usual_where_there_is_room() -> None:
    for here in (machine(gpu(16)), machine(ram_gib=64)):
        assert make_plan(SMALL, here).host.checkpoints == 512 * MIB
        assert make_plan(SMALL, here, PlanOptions(checkpoint_bytes=5)).host.checkpoints == 5
