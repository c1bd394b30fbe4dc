"""Plans for known cards, and rules for every machine."""

import re
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptoss_local.base.errors import DoesNotFitError, UsageError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts, with_dense
from gptoss_local.machine.plan.hypothetical import (
    card_named,
    card_of_size,
    cards_named,
    imagine,
    known_cards,
)
from gptoss_local.machine.plan.memory import all_cache_bytes
from gptoss_local.machine.plan.nearest import nearest
from gptoss_local.machine.plan.options import Attempt, PlanOptions
from gptoss_local.machine.plan.planner import FLOOR_CTX, gpu_budget, make_plan, worth_s
from gptoss_local.machine.plan.result import Plan
from gptoss_local.machine.plan.words import explain, explain_nearest, gib
from tests.plan.machines import FACTS, GIB, LARGE, SMALL, gpu, machine, machines, try_plan


def test_published_facts_are_those_of_the_files(facts: dict[str, ModelFacts]) -> None:
    assert facts == {"20b": SMALL, "120b": LARGE}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("free_gib", "n_least", "n_most", "n_ctx"),
    [(15.3, 0, 0, 98_304), (11.4, 1, 5, 0), (7.4, 10, 18, 0), (4.6, 18, 24, 0)],
)
def test_20b_keeps_in_vram_what_every_token_reads(
    free_gib: float, n_least: int, n_most: int, n_ctx: int
) -> None:
    plan = make_plan(SMALL, machine(gpu(free_gib + 0.5, free_gib)))
    assert plan.placement.n_gpu_layers == 25
    assert n_least <= len(plan.placement.host_experts) <= n_most
    assert plan.shape.n_ctx >= (n_ctx or FLOOR_CTX)
    assert plan.host.is_pinned == (n_most > 0)
    overrides = plan.model_params.tensor_overrides
    assert (plan.vram_share == 1) == (overrides == ()) == (n_most == 0)


@pytest.mark.quick
def test_120b_on_16_gb_with_64_gb_of_ram() -> None:
    """As measured on an H200 with 15.6 GiB free: 31 layers outside, large batches, pinned."""
    plan = make_plan(LARGE, machine(gpu(16, 15.5)))
    assert plan.host.is_pinned
    assert plan.shape.n_batch >= 2048
    assert plan.shape.n_ctx >= 32_768
    assert 29 <= len(plan.placement.host_experts) <= 34
    assert (plan.speed.prefill_bound, plan.speed.decode_bound) == ("PCIe", "RAM")
    assert 8 <= plan.speed.offload_min_batch <= 64
    windows = machine(gpu(16, 15.0, is_wddm=True), pinnable_bytes=32 * GIB)  # pins half of RAM
    assert not make_plan(LARGE, windows).host.is_pinned


@pytest.mark.parametrize(
    ("total_gib", "is_wddm", "margin_mib"),
    [(6, False, 256), (12, False, 369), (16, False, 492), (140, False, 512), (16, True, 983)],
)
def test_other_programs_need_no_more_of_a_large_card(
    total_gib: float, is_wddm: bool, margin_mib: int
) -> None:
    card = gpu(total_gib, is_wddm=is_wddm)
    margin = (card.free_bytes - gpu_budget(card, PlanOptions())) // 2**20
    assert margin == pytest.approx(margin_mib, 0.01)


def test_of_a_wished_context_the_faster_plan_is_taken() -> None:
    """Experts in RAM make more context cheap, which is no reason where the context is wished."""
    here = machine(gpu(12.7, 12.2))
    plan = make_plan(SMALL, here, PlanOptions(n_ctx=2048))
    assert plan.vram_share == 1
    assert "half the context" not in " ".join(explain(SMALL, here, PlanOptions(n_ctx=2048), plan))


def test_what_is_not_in_ram_is_read_again_by_prompts_and_answers() -> None:
    """Of every batch and of every token, and the reasons say so when the speed does."""
    for here in (machine(ram_gib=44), machine(gpu(12), ram_gib=32)):
        plan = make_plan(LARGE, here)
        more = make_plan(LARGE, msgspec.structs.replace(here, available_bytes=80 * GIB))
        assert 0 < plan.host.missing_share(here.available_bytes) < 0.5
        assert plan.speed.decode_bound == "disk"
        assert plan.speed.prefill_tok_s < more.speed.prefill_tok_s
        assert "read from the disk" in " ".join(explain(LARGE, here, PlanOptions(), plan))


def test_without_a_gpu() -> None:
    """Efficiency cores do not decode; what cannot be copied is mapped, which is slow."""
    plan = make_plan(SMALL, machine(ram_gib=32, n_cores=24, n_performance_cores=8))
    assert (plan.uses_gpu, plan.shape.n_ctx, plan.shape.n_batch) == (False, 32_768, 512)
    assert (plan.n_threads_prefill, plan.n_threads_decode) == (24, 8)
    here = machine(ram_gib=64)
    plan = make_plan(LARGE, here)
    assert (plan.repacks, plan.host.weights) == (False, 0)
    assert plan.host.mapped == LARGE.weight_bytes
    assert "disk" in " ".join(explain(LARGE, here, PlanOptions(), plan))
    assert make_plan(LARGE, machine(ram_gib=96)).repacks
    mapped = PlanOptions(attempt=Attempt(maps_host=True))
    assert not make_plan(SMALL, machine(ram_gib=32), mapped).repacks
    with pytest.raises(DoesNotFitError, match="RAM"):
        make_plan(LARGE, machine(ram_gib=24))


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


@pytest.mark.quick
def test_wishes_are_kept() -> None:
    here = machine(gpu(16))
    for n_ctx, kept in ((5000, 5120), (10**6, 131_072)):
        assert make_plan(SMALL, here, PlanOptions(n_ctx=n_ctx)).shape.n_ctx == kept
    assert make_plan(SMALL, here, PlanOptions(min_ctx=100_000)).shape.n_ctx >= 100_000
    assert make_plan(LARGE, machine(ram_gib=96), PlanOptions(min_ctx=50_000)).shape.n_ctx >= 50_000
    for n in (0, 10):
        assert make_plan(SMALL, here, PlanOptions(n_gpu_layers=n)).placement.n_gpu_layers == n
    assert make_plan(SMALL, here, PlanOptions(n_seq=9)).shape.n_seq == 9
    moe = make_plan(SMALL, here, PlanOptions(n_cpu_moe=7))
    assert moe.placement.host_experts == tuple(range(7))


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


def test_a_refusal_says_how_much_is_missing_and_which_setting_fits() -> None:
    with pytest.raises(DoesNotFitError, match=r"5\.5 GiB of RAM are free, 3\.5 GiB on card 0"):
        make_plan(LARGE, machine(gpu(4), ram_gib=6))
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


def test_two_gpus_share_the_layers() -> None:
    plan = make_plan(SMALL, machine(gpu(8), gpu(8, index=1)))
    assert sum(plan.placement.layers_per_gpu) == 25
    assert min(plan.placement.layers_per_gpu) > 8
    # one override, which is of no consequence but to switch pipelining off
    assert plan.model_params.tensor_overrides == ((r"^output\.weight$", "CUDA1"),)


@pytest.mark.parametrize(
    ("facts", "cards", "left_out"),
    [
        (LARGE, [gpu(16, index=0), gpu(16, index=1), gpu(2, index=2)], [2]),
        (LARGE, [gpu(2, index=0), gpu(16, index=1), gpu(16, index=2)], [0]),
        (LARGE, [gpu(16, index=0), gpu(2, index=1), gpu(16, index=2)], [1]),
        # slow, though it has the most memory, as cards made for servers have
        (
            SMALL,
            [gpu(24, index=0, bandwidth_bytes_s=347e9)]
            + [gpu(16, index=i, bandwidth_bytes_s=960e9) for i in (1, 2)],
            [0],
        ),
        # they gain nothing, and are free for other models
        (SMALL, [gpu(24, index=i) for i in range(3)], [1, 2]),
    ],
)
def test_cards_that_would_not_help_are_left_out(
    facts: ModelFacts, cards: list[object], left_out: list[int]
) -> None:
    plan = make_plan(facts, machine(*cards, ram_gib=96))  # type: ignore[arg-type]
    layers = plan.placement.layers_per_gpu
    assert [i for i, n in enumerate(layers) if n == 0] == left_out
    assert all(plan.placement.gpus[i].total == 0 for i in left_out)
    others = [card for i, card in enumerate(cards) if i not in left_out]
    without = make_plan(facts, machine(*others, ram_gib=96))  # type: ignore[arg-type]
    assert (plan.speed, plan.shape) == (without.speed, without.shape)


def of_llama_cpp(plan: Plan) -> list[int]:
    """Return the layers that it gives each GPU. Source: `llama_model::load_tensors`."""
    split = np.cumsum(np.array(plan.tensor_split, dtype=np.float32))
    split /= split[-1]
    n = plan.placement.n_gpu_layers
    places = [int(np.searchsorted(split, np.float32(i) / np.float32(n), "right")) for i in range(n)]
    return [places.count(i) for i in range(len(split))]


@pytest.mark.parametrize("name", ["RTX 3060", "RTX 4060 Ti 16GB", "RTX 3090", "RTX 5060"])
def test_equal_cards_have_equal_shares(name: str) -> None:
    n_plans = 0
    for count, ram_gib, n_ctx in product(range(1, 9), (16, 32, 64), (8192, 65_536)):
        here, _ = imagine(machine(), [card_named(name)] * count, ram_gib * GIB)
        for facts in (SMALL, LARGE):
            if plan := try_plan(facts, here, PlanOptions(n_ctx=n_ctx)):
                n_plans += 1
                used = [n for n in plan.placement.layers_per_gpu if n]
                assert not used or max(used) - min(used) < 2, (count, used)
                assert not used or of_llama_cpp(plan) == used
    assert n_plans > 50


def test_many_small_cards_hold_what_fits() -> None:
    """37 layers over seven cards are 6, 6 and five times 5; a card with 7 would have no room."""
    here, _ = imagine(machine(), [card_of_size(12 * GIB)] * 7, 64 * GIB)
    assert make_plan(LARGE, here, PlanOptions(n_ctx=4096, n_cpu_moe=0)).vram_share == 1


@pytest.mark.parametrize(("facts", "model"), [(SMALL, "gpt-oss:20b"), (LARGE, "gpt-oss:120b")])
def test_what_is_proposed_fits(facts: ModelFacts, model: str) -> None:
    n_proposals = 0
    for vram_gib, ram_gib, n_ctx in product((6, 8, 12, 13, 16), (24, 64), (None, 131_072)):
        here, _ = imagine(machine(), [card_of_size(vram_gib * GIB)], ram_gib * GIB)
        options = PlanOptions(n_ctx=n_ctx)
        plan = try_plan(facts, here, options)
        near = nearest(facts, here, options, plan) if plan else None
        if plan is None or near is None:
            continue
        assert gib(near.missing_bytes) in explain_nearest(near, plan, model)
        for each in near.proposals:
            n_proposals += 1
            flag, value = each.flag.split()
            changed, weights = options, facts
            if flag == "--ctx":
                changed = PlanOptions(n_ctx=int(value))
            elif flag == "--kv-type":
                changed = PlanOptions(n_ctx=n_ctx, cache_type="q8_0")
            else:
                weights = with_dense(facts, value) or facts
            better = make_plan(weights, here, changed)
            assert better.speed.request_s == each.request_s < plan.speed.request_s
            if each.is_enough:
                assert better.uses_gpu
                assert better.vram_share == 1 or not plan.uses_gpu
    assert n_proposals > 5


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
    placement, host = plan.placement, plan.host
    for card, memory in zip(here.usable_gpus, placement.gpus, strict=False):
        assert memory.total <= gpu_budget(card, options) <= card.free_bytes
        assert options.vram_bytes is None or memory.total <= options.vram_bytes
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
    if placement.n_gpu_layers == facts.n_layers + 1:
        if options.n_cpu_moe is not None:
            assert placement.host_experts == tuple(range(min(options.n_cpu_moe, facts.n_layers)))
            assert placement.host_parts == ()
        check_overrides(facts, plan.model_params.tensor_overrides, on_host(placement))
    assert all(explain(facts, here, options, plan))


def on_host(placement: object) -> set[tuple[int, str]]:
    """Return the layers and parts of experts that are on the host."""
    parts = {(layer, part) for layer, names in placement.host_parts for part in names}  # type: ignore[attr-defined]
    layers = placement.host_experts  # type: ignore[attr-defined]
    return parts | {(layer, part) for layer in layers for part in ("gate", "up", "down")}


def check_overrides(
    facts: ModelFacts, overrides: tuple[tuple[str, str], ...], expected: set[tuple[int, str]]
) -> None:
    """They name exactly the experts of the host."""
    patterns = [(re.compile(pattern), device) for pattern, device in overrides]
    for layer in range(facts.n_layers):
        for part in ("gate", "up", "down"):
            for kind in ("weight", "bias"):
                name = f"blk.{layer}.ffn_{part}_exps.{kind}"
                hits = [device for pattern, device in patterns if pattern.search(name)]
                assert hits == (["CPU"] if (layer, part) in expected else [])


@given(
    facts=FACTS,
    here=machines(min_gpus=1, max_gpus=3),
    grows=st.sampled_from(["RAM", "VRAM", "a card"]),
    more_mib=st.integers(1, 20_000),
    which=st.integers(0, 2),
    n_ctx=st.sampled_from([None, 32_768, 131_072]),
)
def test_more_hardware_is_never_slower(
    facts: ModelFacts, here: Machine, grows: str, more_mib: int, which: int, n_ctx: int | None
) -> None:
    """For a given context the request is as fast or faster; without one it is worth as much.

    A card is left out at worst. More VRAM is of up to two GPUs: to three and more, layers are dealt
    out by their memory, which is coarse. More RAM makes more context, which takes time.
    """
    more, cards = more_mib * 2**20, list(here.gpus)
    index = which % len(cards)
    if grows == "a card":
        smaller, larger = (
            msgspec.structs.replace(here, gpus=(*cards[:index], *cards[index + 1 :])),
            here,
        )
    elif grows == "VRAM":
        cards = cards[:2]
        card = cards[index % len(cards)]
        cards[index % len(cards)] = msgspec.structs.replace(card, free_bytes=card.free_bytes + more)
        smaller = msgspec.structs.replace(here, gpus=here.gpus[:2])
        larger = msgspec.structs.replace(here, gpus=tuple(cards))
    else:
        n_ctx, smaller = n_ctx or 32_768, here
        pinnable = None if here.pinnable_bytes is None else here.pinnable_bytes + more
        available = here.available_bytes + more
        larger = msgspec.structs.replace(here, available_bytes=available, pinnable_bytes=pinnable)
    options = PlanOptions(n_ctx=n_ctx)
    before, after = try_plan(facts, smaller, options), try_plan(facts, larger, options)
    if before is None:
        return
    assert after is not None
    if n_ctx:
        assert after.speed.request_s <= before.speed.request_s * (1 + 1e-4)
    elif before.shape.n_ctx >= FLOOR_CTX:
        assert worth_s(facts, after, options) <= worth_s(facts, before, options) * (1 + 1e-4)


def test_imagined_cards_leave_room_for_a_desktop() -> None:
    here, _ = imagine(machine(), [card_of_size(16 * GIB), card_of_size(12 * GIB)], 48 * GIB)
    assert [g.total_bytes for g in here.usable_gpus] == [16 * GIB, 12 * GIB]
    assert here.usable_gpus[0].free_bytes < 16 * GIB
    assert here.total_bytes == 48 * GIB
    assert here.pinnable_bytes == 48 * GIB * 9 // 10
    assert not imagine(here, [])[0].usable_gpus
    windows, _ = imagine(machine(platform="windows"), [card_of_size(16 * GIB)], 64 * GIB)
    assert windows.pinnable_bytes == 32 * GIB
    assert windows.gpus[0].is_wddm


DRIVERS_NAMES = {
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000 Max-Q",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000",
    "NVIDIA RTX PRO 5000 72GB Blackwell": "RTX PRO 5000 72GB",
    "NVIDIA RTX PRO 2000 Blackwell": "RTX PRO 2000",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX 2000 Ada Generation": "RTX 2000 Ada",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA A100-SXM4-80GB": "A100 80GB",
    "NVIDIA A100-PCIE-40GB": "A100 40GB",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA B200": "B200",
    "Tesla T4": "T4",
    "Tesla P40": "P40",
    "Tesla V100-SXM2-32GB": "V100 32GB",
    "NVIDIA GeForce GTX 1080 Ti": "GTX 1080 Ti",
    "Tesla P100-PCIE-16GB": "P100",
    "Tesla V100S-PCIE-32GB": "V100S",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GB200": "B200",
    "NVIDIA A800-SXM4-80GB": "A100 80GB",
    "H200 141GB": "H200",
    "NVIDIA GeForce RTX 3080 Lite Hash Rate": "RTX 3080",
    "NVIDIA RTX 5000 Ada Generation Laptop GPU": "RTX 5000 Ada Laptop",
    "NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU": "RTX PRO 5000 Laptop",
    "NVIDIA Jetson AGX Thor Developer Kit": "Jetson AGX Thor",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "NVIDIA GB10": "GB10",
    "DGX Spark": "GB10",
    "NVIDIA Thor": "Jetson AGX Thor",
    "Jetson AGX Orin": "Jetson AGX Orin 64GB",
    "RTX 3060 12 GB": "RTX 3060",
}


def test_a_card_is_known_by_the_name_that_its_driver_gives() -> None:
    for text in ("RTX 5070 Ti", "rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", "5070 ti"):
        card = card_named(text)
        assert (card.name, card.total_bytes) == ("RTX 5070 Ti", 16 * GIB)
        assert card.bandwidth_bytes_s == 896e9
    assert card_named("NVIDIA GeForce RTX 4090 Laptop GPU").total_bytes == 16 * GIB
    for text, name in DRIVERS_NAMES.items():
        assert card_named(text).name == name
    for text in ("2x RTX 3060", "rtx 3060 x2", "2 × RTX 3060 12GB"):
        assert [card.name for card in cards_named(text)] == 2 * ["RTX 3060"]
    assert [card.name for card in cards_named("RTX 3090")] == ["RTX 3090"]
    for text in ("RTX 9090", "RTX 5060 Ti", "RTX 4090 16GB", "V100", "RTX 6000", ""):
        with pytest.raises(UsageError, match="is not known"):
            card_named(text)


def test_each_known_card_gets_a_plan() -> None:
    for name, card in known_cards().items():
        here, _ = imagine(machine(), [card], None if card.shares_ram else 64 * GIB)
        assert here.gpus[0].name == name
        assert here.gpus[0].shares_ram == card.shares_ram
        assert make_plan(SMALL, here).placement.n_gpu_layers, name
