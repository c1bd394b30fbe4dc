"""Plans for known cards, and rules for every machine."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptoss_local.base.errors import DoesNotFitError, UsageError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.hypothetical import card_named, card_of_size, imagine, known_cards
from gptoss_local.machine.plan.memory import all_cache_bytes, compute_bytes
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import FLOOR_CTX, gpu_budget, make_plan
from gptoss_local.machine.plan.words import explain
from tests.plan.machines import FACTS, GIB, LARGE, SMALL, gpu, machine, machines, try_plan


def test_published_facts_are_those_of_the_files(facts: dict[str, ModelFacts]) -> None:
    assert facts == {"20b": SMALL, "120b": LARGE}


@pytest.mark.quick
def test_20b_on_16_gb_has_all_context() -> None:
    plan = make_plan(SMALL, machine(gpu(16, 15.3)))
    assert plan.shape.n_ctx == 131_072
    assert plan.placement.n_gpu_layers == 25
    assert plan.placement.tensor_overrides() == ()
    assert plan.speed.decode_bound == "GPU memory"
    assert plan.vram_share == 1


@pytest.mark.parametrize(
    ("free_gib", "n_least", "n_most"), [(11.4, 1, 5), (7.4, 10, 18), (4.6, 18, 24)]
)
def test_20b_on_smaller_cards_keeps_what_every_token_reads(
    free_gib: float, n_least: int, n_most: int
) -> None:
    plan = make_plan(SMALL, machine(gpu(free_gib + 0.5, free_gib)))
    assert plan.placement.n_gpu_layers == 25
    assert n_least <= len(plan.placement.host_experts) <= n_most
    assert plan.shape.n_ctx >= FLOOR_CTX
    assert plan.host.is_pinned


@pytest.mark.quick
def test_120b_on_16_gb_with_64_gb_of_ram() -> None:
    """As measured on an H200 with 15.6 GiB free: 31 layers outside, large batches, pinned."""
    plan = make_plan(LARGE, machine(gpu(16, 15.5)))
    assert plan.host.is_pinned
    assert plan.shape.n_batch >= 2048
    assert plan.shape.n_ctx >= 32_768
    assert 29 <= len(plan.placement.host_experts) <= 34
    assert plan.speed.prefill_bound == "PCIe"
    assert plan.speed.decode_bound == "RAM"
    assert 8 <= plan.speed.offload_min_batch <= 64


@pytest.mark.parametrize(
    ("total_gib", "is_wddm", "margin_mib"),
    [(6, False, 256), (12, False, 369), (16, False, 492), (140, False, 512), (16, True, 983)],
)
def test_other_programs_need_no_more_of_a_large_card(
    total_gib: float, is_wddm: bool, margin_mib: int
) -> None:
    card = gpu(total_gib, is_wddm=is_wddm)
    assert (card.free_bytes - gpu_budget(card, PlanOptions())) // 2**20 == pytest.approx(
        margin_mib, 0.01
    )


def test_of_a_wished_context_the_faster_plan_is_taken() -> None:
    """Experts in RAM make more context cheap, which is no reason where the context is wished."""
    here = machine(gpu(12.7, 12.2))
    plan = make_plan(SMALL, here, PlanOptions(n_ctx=2048))
    assert plan.vram_share == 1
    assert "half the context" not in " ".join(explain(SMALL, here, PlanOptions(n_ctx=2048), plan))


def test_host_layers_need_room_for_copies_on_the_gpu() -> None:
    """The GPU works with their experts, too, where a prompt is long."""
    memory = make_plan(SMALL, machine(gpu(16)), PlanOptions(n_gpu_layers=10, n_ctx=8192)).placement
    n_bytes = sum(layer.expert_bytes[0] for layer in SMALL.layers[:1])
    shape = make_plan(SMALL, machine(gpu(16)), PlanOptions(n_gpu_layers=25, n_ctx=8192)).shape
    assert memory.gpus[0].compute >= compute_bytes(SMALL, shape) + n_bytes


def test_what_is_not_in_ram_is_read_again_by_prompts_and_answers() -> None:
    """Of every batch and of every token, and the reasons say so when the speed does."""
    for here in (machine(ram_gib=44), machine(gpu(12), ram_gib=32)):
        plan = make_plan(LARGE, here)
        more = make_plan(LARGE, msgspec.structs.replace(here, available_bytes=80 * GIB))
        assert 0 < plan.host.missing_share(here.available_bytes) < 0.5
        assert plan.speed.decode_bound == "disk"
        assert plan.speed.prefill_tok_s < more.speed.prefill_tok_s
        assert "read from the disk" in " ".join(explain(LARGE, here, PlanOptions(), plan))


def test_windows_pins_half_of_ram() -> None:
    here = machine(gpu(16, 15.0, is_wddm=True), pinnable_bytes=32 * GIB)
    assert not make_plan(LARGE, here).host.is_pinned
    assert make_plan(SMALL, here).placement.tensor_overrides() == ()


def test_single_tensors_fill_what_whole_layers_leave() -> None:
    """Every size of card has the next tensor only when it fits."""
    n_parts = set()
    for mib in range(6000, 7000, 100):
        plan = make_plan(SMALL, machine(gpu(8, mib / 1024)), PlanOptions(n_ctx=32_768))
        n_parts.add(sum(len(names) for _, names in plan.placement.host_parts))
    assert n_parts == {0, 1, 2}


def test_no_gpu_plans_as_before() -> None:
    plan = make_plan(SMALL, machine(ram_gib=32, n_performance_cores=8))
    assert (plan.uses_gpu, plan.shape.n_ctx, plan.shape.n_batch) == (False, 32_768, 512)
    assert (plan.n_threads_prefill, plan.n_threads_decode) == (8, 8)


def test_efficiency_cores_do_not_decode() -> None:
    plan = make_plan(SMALL, machine(ram_gib=32, n_cores=24, n_performance_cores=8))
    assert (plan.n_threads_prefill, plan.n_threads_decode) == (24, 8)


@pytest.mark.parametrize(
    ("n_cores", "n_logical", "n_threads"),
    [(16, 16, 14), (8, 8, 7), (6, 6, 5), (8, 16, 8), (8, 24, 8), (1, 1, 1), (8, None, 8)],
)
def test_threads_that_wait_for_a_gpu_leave_cores_to_others(
    n_cores: int, n_logical: int | None, n_threads: int
) -> None:
    cores = {"n_cores": n_cores, "n_performance_cores": n_cores, "n_logical_cores": n_logical}
    plan = make_plan(SMALL, machine(gpu(8), **cores))
    assert plan.placement.host_experts
    assert (plan.n_threads_prefill, plan.n_threads_decode) == (n_threads, n_threads)
    assert make_plan(SMALL, machine(**cores)).n_threads_decode == n_cores
    wished = make_plan(SMALL, machine(gpu(8), **cores), PlanOptions(n_threads=n_cores))
    assert wished.n_threads_decode == n_cores


def test_a_cpu_maps_what_it_cannot_copy() -> None:
    """120b without a GPU on 64 GB: slow from the page cache, instead of refused."""
    here = machine(ram_gib=64)
    plan = make_plan(LARGE, here)
    assert not plan.repacks
    assert plan.host.weights == 0
    assert plan.host.mapped == LARGE.weight_bytes
    assert "disk" in " ".join(explain(LARGE, here, PlanOptions(), plan))
    assert make_plan(LARGE, machine(ram_gib=96)).repacks
    assert not make_plan(SMALL, machine(ram_gib=32), PlanOptions(maps_host=True)).repacks
    with pytest.raises(DoesNotFitError, match="RAM"):
        make_plan(LARGE, machine(ram_gib=24))


@pytest.mark.quick
def test_wishes_are_kept() -> None:
    here = machine(gpu(16))
    assert make_plan(SMALL, here, PlanOptions(n_ctx=5000)).shape.n_ctx == 5120
    assert make_plan(SMALL, here, PlanOptions(n_ctx=10**6)).shape.n_ctx == 131_072
    assert make_plan(SMALL, here, PlanOptions(min_ctx=100_000)).shape.n_ctx >= 100_000
    assert make_plan(SMALL, here, PlanOptions(n_gpu_layers=0)).placement.n_gpu_layers == 0
    assert make_plan(SMALL, here, PlanOptions(n_gpu_layers=10)).placement.n_gpu_layers == 10
    assert make_plan(SMALL, here, PlanOptions(n_seq=9)).shape.n_seq == 9
    moe = make_plan(SMALL, here, PlanOptions(n_cpu_moe=7))
    assert moe.placement.host_experts == tuple(range(7))
    assert make_plan(LARGE, machine(ram_gib=96), PlanOptions(min_ctx=50_000)).shape.n_ctx >= 50_000


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (PlanOptions(n_gpu_layers=25), "25 layers on the GPU"),
        (PlanOptions(n_cpu_moe=2), "all experts but those of the first 2 layers in VRAM"),
        (PlanOptions(n_cpu_moe=0), "room for all experts in VRAM"),
        (PlanOptions(n_ctx=131_072, vram_bytes=3 * GIB, n_cpu_moe=24), "131,072 tokens"),
        (PlanOptions(vram_bytes=1 * GIB, n_cpu_moe=24, n_gpu_layers=25), "1.0 GiB of each GPU"),
        (PlanOptions(n_gpu_layers=25, n_cpu_moe=2), "everything that was asked for"),
    ],
)
def test_impossible_wishes_are_named(options: PlanOptions, reason: str) -> None:
    with pytest.raises(DoesNotFitError, match=reason):
        make_plan(SMALL, machine(gpu(8)), options)


def test_no_machine_for_it() -> None:
    with pytest.raises(DoesNotFitError, match=r"5\.5 GiB of RAM are free, 3\.5 GiB on card 0"):
        make_plan(LARGE, machine(gpu(4), ram_gib=6))


@given(
    facts=FACTS,
    here=machines(),
    options=st.builds(
        PlanOptions,
        n_ctx=st.sampled_from([None, 4096, 40_000, 131_072]),
        vram_bytes=st.sampled_from([None, 5 * GIB, 20 * GIB]),
        n_gpu_layers=st.sampled_from([None, None, 0, 12, 99]),
        n_cpu_moe=st.sampled_from([None, None, 0, 12, 99]),
        n_seq=st.sampled_from([1, 4, 16]),
    ),
)
def test_every_plan_keeps_budgets_and_wishes(
    facts: ModelFacts, here: Machine, options: PlanOptions
) -> None:
    plan = try_plan(facts, here, options)
    if plan is None:
        return
    placement = plan.placement
    for card, memory in zip(here.usable_gpus, placement.gpus, strict=False):
        assert memory.total <= gpu_budget(card, options) <= card.free_bytes
        assert options.vram_bytes is None or memory.total <= options.vram_bytes
    host = plan.host
    assert host.total - host.mapped <= here.available_bytes
    assert not host.is_pinned or host.weights <= (here.pinnable_bytes or 0)
    # each byte of weights and cache is somewhere, once
    in_vram = sum(memory.weights for memory in placement.gpus)
    assert in_vram + host.weights + host.mapped == facts.weight_bytes
    caches = host.cache + sum(memory.cache for memory in placement.gpus)
    assert caches == all_cache_bytes(facts, plan.shape)
    if options.n_ctx:
        assert 0 <= plan.shape.n_ctx - options.n_ctx < 256
    if options.n_gpu_layers is not None and here.usable_gpus:
        assert placement.n_gpu_layers == min(options.n_gpu_layers, facts.n_layers + 1)
    if options.n_cpu_moe is not None and placement.n_gpu_layers == facts.n_layers + 1:
        assert placement.host_experts == tuple(range(min(options.n_cpu_moe, facts.n_layers)))
        assert placement.host_parts == ()
    assert all(explain(facts, here, options, plan))


@given(facts=FACTS, here=machines(), more_gib=st.integers(1, 64))
def test_more_ram_is_never_slower(facts: ModelFacts, here: Machine, more_gib: int) -> None:
    more = more_gib * GIB
    larger = msgspec.structs.replace(
        here,
        available_bytes=here.available_bytes + more,
        pinnable_bytes=None if here.pinnable_bytes is None else here.pinnable_bytes + more,
    )
    options = PlanOptions(n_ctx=32_768)
    before, after = try_plan(facts, here, options), try_plan(facts, larger, options)
    if before is not None:
        assert after is not None
        assert after.speed.request_s <= before.speed.request_s * (1 + 1e-9)


@given(facts=FACTS, here=machines(min_gpus=1))
def test_overrides_name_exactly_the_experts_of_the_host(facts: ModelFacts, here: Machine) -> None:
    plan = try_plan(facts, here, PlanOptions())
    if plan is None or not plan.uses_gpu:
        return
    placement = plan.placement
    parts = dict(placement.host_parts)
    overrides = [(re.compile(p), device) for p, device in placement.tensor_overrides()]
    for layer in range(facts.n_layers):
        for part in ("gate", "up", "down"):
            for kind in ("weight", "bias"):
                name = f"blk.{layer}.ffn_{part}_exps.{kind}"
                hits = [device for pattern, device in overrides if pattern.search(name)]
                on_host = layer in placement.host_experts or part in parts.get(layer, ())
                assert hits == (["CPU"] if on_host else [])


def test_imagined_cards_leave_room_for_a_desktop() -> None:
    here, _ = imagine(machine(), [card_of_size(16 * GIB), card_of_size(12 * GIB)], 48 * GIB)
    assert [g.total_bytes for g in here.usable_gpus] == [16 * GIB, 12 * GIB]
    assert here.usable_gpus[0].free_bytes < 16 * GIB
    assert here.total_bytes == 48 * GIB
    assert not imagine(here, [])[0].usable_gpus


def test_a_card_is_known_by_the_name_that_its_driver_gives() -> None:
    for text in ("RTX 5070 Ti", "rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", "5070 ti"):
        card = card_named(text)
        assert (card.name, card.gib, card.gb_s) == ("RTX 5070 Ti", 16, 896)
    assert card_named("NVIDIA GeForce RTX 4090 Laptop GPU").gib == 16
    for text in ("RTX 9090", "RTX 5060 Ti", ""):
        with pytest.raises(UsageError, match="is not known"):
            card_named(text)


@pytest.mark.parametrize("name", known_cards())
def test_each_known_card_gets_a_plan(name: str) -> None:
    card = known_cards()[name]
    here, _ = imagine(machine(), [card], None if card.shares_ram else 64 * GIB)
    assert here.gpus[0].name == name
    assert here.gpus[0].shares_ram == card.shares_ram
    assert make_plan(SMALL, here).placement.n_gpu_layers


def test_a_refusal_says_how_much_is_missing_and_which_setting_fits() -> None:
    here, _ = imagine(machine(), [], 8 * GIB)
    asked = PlanOptions(n_ctx=131_072, n_seq=1)
    with pytest.raises(DoesNotFitError, match=r"; it takes 1 GiB of RAM more$") as refused:
        make_plan(SMALL, here, asked)
    fits = re.fullmatch(r"A context of [\d,]+ tokens fits: --ctx (\d+)", refused.value.hint)
    assert fits is not None
    assert make_plan(SMALL, here, msgspec.structs.replace(asked, n_ctx=int(fits[1]))).shape.n_ctx
    with pytest.raises(DoesNotFitError):
        make_plan(SMALL, here, msgspec.structs.replace(asked, n_ctx=int(fits[1]) + 2048))
    assert make_plan(SMALL, imagine(machine(), [], 10 * GIB)[0], asked)
    with pytest.raises(DoesNotFitError, match=r"21\.6 GiB of RAM are free; it takes \d+ GiB"):
        make_plan(LARGE, imagine(machine(), [], 24 * GIB)[0])


def test_imagined_memory_is_that_of_the_system_here() -> None:
    cards = [card_of_size(16 * GIB)]
    windows, _ = imagine(machine(platform="windows"), cards, 64 * GIB)
    assert windows.pinnable_bytes == 32 * GIB
    assert windows.gpus[0].is_wddm
    assert imagine(machine(), cards, 64 * GIB)[0].pinnable_bytes == 64 * GIB * 9 // 10
