"""A cache of another type than f16: its savings, its cost on a GPU, its limits."""

import msgspec
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import CacheType
from gptoss_local.machine.plan.memory import Shape, all_cache_bytes, f16_cache_bytes, token_bytes
from gptoss_local.machine.plan.options import PlanOptions, plan_options
from gptoss_local.machine.plan.placement import iter_placements
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.words import explain
from tests.plan.machines import LARGE, MIB, SMALL, gpu, machine

pytestmark = pytest.mark.quick

LONG = Shape(n_ctx=131_072, n_batch=512, n_seq=4, n_outputs=19)


def test_half_the_memory_of_a_long_context() -> None:
    """Of 12 layers with all tokens, and of as many with a window."""
    q8_0 = msgspec.structs.replace(LONG, cache_type="q8_0")
    assert all_cache_bytes(SMALL, q8_0) == all_cache_bytes(SMALL, LONG) * 8.5 / 16
    assert token_bytes(SMALL, "f16") == 12 * 2 * 512 * 2


@pytest.mark.parametrize(("n_batch", "least_mib", "most_mib"), [(512, 190, 210), (4096, 0, 0)])
def test_a_gpu_converts_a_layer_of_it(n_batch: int, least_mib: int, most_mib: int) -> None:
    """131,072 keys and values of 512 numbers in f16, 256 MiB, unless a large batch takes more."""
    shape = msgspec.structs.replace(LONG, n_batch=n_batch, cache_type="q8_0")
    plain = msgspec.structs.replace(shape, cache_type="f16")
    assert least_mib <= f16_cache_bytes(SMALL, shape) / MIB <= most_mib
    assert f16_cache_bytes(SMALL, plain) == 0
    placements = (next(iter_placements(SMALL, each, [1 << 50])) for each in (shape, plain))
    small, large = (placement.gpus[0] for placement in placements)
    assert small.compute - large.compute == f16_cache_bytes(SMALL, shape)
    assert small.total < large.total


def test_what_it_saves_goes_to_experts() -> None:
    """120b, 131,072 tokens: 4.6 GiB of cache in f16, of which half are layers of experts."""
    here = machine(gpu(16, 15.5))

    def n_host_layers(cache_type: CacheType) -> int:
        options = PlanOptions(n_ctx=131_072, cache_type=cache_type)
        return len(make_plan(LARGE, here, options).placement.host_experts)

    assert n_host_layers("q4_0") < n_host_layers("q8_0") < n_host_layers("f16")


def test_a_wish_is_in_the_plan_and_its_reasons() -> None:
    here, options = machine(gpu(16)), plan_options(Settings(kv_type="q8_0"), 15)
    plan = make_plan(SMALL, here, options)
    assert plan.context_params.cache_type == "q8_0"
    reasons = " ".join(explain(SMALL, here, options, plan))
    assert "Keys and values are stored as q8_0, as requested: 1.6 GiB instead of 3.1" in reasons
    plain = PlanOptions()
    assert "stored as" not in " ".join(explain(SMALL, here, plain, make_plan(SMALL, here, plain)))


def test_keys_that_are_no_whole_blocks() -> None:
    odd = msgspec.structs.replace(SMALL, n_key=48)
    with pytest.raises(UsageError, match="keys of 48 numbers cannot be stored as q8_0"):
        make_plan(odd, machine(gpu(16)), PlanOptions(cache_type="q8_0"))
    assert make_plan(odd, machine(gpu(16))).shape.cache_type == "f16"
