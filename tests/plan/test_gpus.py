"""More memory and more cards: plans for them are never worse."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import FLOOR_CTX, make_plan, worth_s
from tests.plan.machines import FACTS, LARGE, SMALL, gpu, machine, machines, try_plan


def test_two_gpus_share_the_layers() -> None:
    plan = make_plan(SMALL, machine(gpu(8), gpu(8, index=1)))
    assert sum(plan.placement.layers_per_gpu) == 25
    assert min(plan.placement.layers_per_gpu) > 8
    # one override, which is of no consequence but to switch pipelining off
    assert plan.placement.tensor_overrides() == ((r"^output\.weight$", "CUDA1"),)


@pytest.mark.parametrize("sizes_gib", [(16, 16, 2), (2, 16, 16), (16, 2, 16), (24, 24, 2)])
def test_a_card_that_is_too_small_is_left_out(sizes_gib: tuple[int, int, int]) -> None:
    """An old card next to two good ones: it does not send 120b to the CPU."""
    cards = [gpu(size, index=i) for i, size in enumerate(sizes_gib)]
    plan = make_plan(LARGE, machine(*cards, ram_gib=96))
    without = make_plan(LARGE, machine(*(c for c in cards if c.total_bytes > 2**32), ram_gib=96))
    small = sizes_gib.index(2)
    assert plan.placement.layers_per_gpu[small] == 0
    assert plan.placement.gpus[small].total == 0
    assert plan.speed == without.speed
    assert plan.shape == without.shape


def test_a_slow_card_is_left_out_where_fast_ones_are_enough() -> None:
    """It has the most memory, as cards made for servers have."""
    slow = gpu(24, index=0, bandwidth_bytes_s=347e9)
    fast = [gpu(16, index=i, bandwidth_bytes_s=960e9) for i in (1, 2)]
    plan = make_plan(SMALL, machine(slow, *fast))
    assert plan.placement.layers_per_gpu[0] == 0
    assert plan.speed == make_plan(SMALL, machine(*fast)).speed


@pytest.mark.parametrize("n_cards", [2, 3, 5])
def test_cards_that_gain_nothing_stay_free(n_cards: int) -> None:
    """For other models; and tokens need not be handed over."""
    cards = [gpu(24, index=i) for i in range(n_cards)]
    plan = make_plan(SMALL, machine(*cards))
    assert plan.placement.layers_per_gpu == (25, *[0] * (n_cards - 1))


@given(
    facts=FACTS,
    here=machines(min_gpus=2, max_gpus=4),
    which=st.integers(0, 3),
    n_ctx=st.sampled_from([None, 32_768, 131_072]),
)
def test_no_card_makes_a_plan_worse(
    facts: ModelFacts, here: Machine, which: int, n_ctx: int | None
) -> None:
    """At worst it is left out."""
    gone = which % len(here.gpus)
    others = tuple(card for i, card in enumerate(here.gpus) if i != gone)
    options = PlanOptions(n_ctx=n_ctx)
    before = try_plan(facts, msgspec.structs.replace(here, gpus=others), options)
    after = try_plan(facts, here, options)
    if before is not None:
        assert after is not None
        if n_ctx:
            assert after.speed.request_s <= before.speed.request_s * (1 + 1e-9)
        elif before.shape.n_ctx >= FLOOR_CTX:
            assert worth_s(facts, after, options) <= worth_s(facts, before, options) * (1 + 1e-9)


@given(
    facts=FACTS,
    here=machines(min_gpus=1),
    more_mib=st.integers(1, 20_000),
    which=st.integers(0, 2),
    n_ctx=st.sampled_from([None, 32_768, 131_072]),
)
def test_more_vram_is_never_slower(
    facts: ModelFacts, here: Machine, more_mib: int, which: int, n_ctx: int | None
) -> None:
    """For a given context the request is as fast or faster; without one it is worth as much.

    Of up to two GPUs: to three and more, layers are dealt out by their memory, which is coarse.
    """
    here = msgspec.structs.replace(here, gpus=here.gpus[:2])
    index = which % len(here.gpus)
    cards = list(here.gpus)
    card = cards[index]
    cards[index] = msgspec.structs.replace(card, free_bytes=card.free_bytes + more_mib * 2**20)
    larger = msgspec.structs.replace(here, gpus=tuple(cards))
    options = PlanOptions(n_ctx=n_ctx)
    before, after = try_plan(facts, here, options), try_plan(facts, larger, options)
    if before is None:
        return
    assert after is not None
    if n_ctx:
        assert after.speed.request_s <= before.speed.request_s * (1 + 1e-9)
    elif before.shape.n_ctx >= FLOOR_CTX:
        assert worth_s(facts, after, options) <= worth_s(facts, before, options) * (1 + 1e-9)
