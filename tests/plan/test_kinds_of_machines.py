"""Machines that are not a PC with a card: shared memory, cards of several ages, little RAM."""

import msgspec
import pytest

from gptoss_local.base.errors import DoesNotFitError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import FLOOR_CTX, make_plan
from gptoss_local.machine.plan.words import explain
from tests.plan.machines import GIB, LARGE, MIB, SMALL, gpu, machine

pytestmark = pytest.mark.quick


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
    arm = {"has_avx2": None, "arm_features": ("dotprod", "i8mm")}
    here = machine(board, ram_gib=ram_gib, available_bytes=(ram_gib - 6) * GIB, **arm)
    plan = make_plan(facts, here)
    assert plan.shape.n_ctx == 131_072
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


def test_a_card_without_code_is_left_out() -> None:
    """A GTX 1080 next to an RTX 3060 or alone, and CUDA 13."""
    old, new = gpu(8, index=0, compute_capability=(6, 1)), gpu(12, index=1)
    assert make_plan(SMALL, machine(old, new, cuda_build=12)).devices == ("CUDA0", "CUDA1")
    for here, devices in (
        (machine(old, new, cuda_build=13), ("CUDA1",)),
        (machine(old, cuda_build=13), ()),
    ):
        plan = make_plan(SMALL, here)
        assert plan.uses_gpu == bool(devices)
        assert not devices or plan.devices == devices
        text = " ".join(explain(SMALL, here, PlanOptions(), plan))
        assert "no code for compute capability 6.1" in text


def test_by_vulkan_devices_have_llama_cpps_names() -> None:
    """Another maker's card may be counted before them, so their places do not tell."""
    cards = gpu(12, device="Vulkan1"), gpu(12, index=1, device="Vulkan3")
    plan = make_plan(SMALL, machine(*cards, backend="Vulkan"))
    assert plan.devices == ("Vulkan1", "Vulkan3")
    assert plan.model_params.tensor_overrides == ((r"^output\.weight$", "Vulkan3"),)


def little(short_bytes: int) -> Machine:
    """A machine without GPUs that has so much less than 20b with 512 MiB of checkpoints takes."""
    plan = make_plan(SMALL, machine(ram_gib=64, has_avx2=False))
    needed = plan.host.total - plan.host.mapped
    half = plan.host.total // 2
    return machine(available_bytes=max(needed, half) - short_bytes, ram_gib=64, has_avx2=False)


@pytest.mark.parametrize("short_mib", [1, 100, 255])
def test_checkpoints_shrink_before_context_and_before_a_refusal(short_mib: int) -> None:
    """Unless they are wished; where there is room, they are as many as usual."""
    here = little(short_mib * MIB)
    plan = make_plan(SMALL, here)
    assert plan.shape.n_ctx == FLOOR_CTX
    assert 0 <= plan.host.checkpoints < 512 * MIB
    wished = PlanOptions(checkpoint_bytes=512 * MIB)
    assert make_plan(SMALL, here, wished).shape.n_ctx < FLOOR_CTX
    with pytest.raises(DoesNotFitError, match=r"room for .* bytes of checkpoints"):
        make_plan(SMALL, here, PlanOptions(checkpoint_bytes=64 * GIB))
    for large in (machine(gpu(16)), machine(ram_gib=64)):
        assert make_plan(SMALL, large).host.checkpoints == 512 * MIB
        assert make_plan(SMALL, large, PlanOptions(checkpoint_bytes=5)).host.checkpoints == 5
