"""The plan after a failed load."""

import pytest

from gptoss_local.base.errors import EngineCrashedError, ModelLoadError
from gptoss_local.machine.plan.options import Attempt, PlanOptions
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.runner.planning import STEP_BYTES, next_attempt
from tests.plan.machines import GIB, LARGE, gpu, machine

pytestmark = pytest.mark.quick

HERE = machine(gpu(16))
FREE = [gpu(16).free_bytes]
KILLED = EngineCrashedError("it died", was_killed=True)


def test_a_process_killed_for_ram_takes_no_more_ram_with_the_next_plan() -> None:
    """Less in VRAM would: so pinned weights are mapped, once, and after that nothing helps."""
    pinned = make_plan(LARGE, HERE)
    assert pinned.host.is_pinned
    second = next_attempt(Attempt(), pinned, KILLED, free_before=FREE, free_now=FREE)
    assert second == Attempt(maps_host=True)
    mapped = make_plan(LARGE, HERE, PlanOptions(maps_host=True))
    assert next_attempt(second, mapped, KILLED, free_before=FREE, free_now=FREE) is None


def test_too_little_vram_leaves_more_of_it_each_time() -> None:
    plan, error, last = make_plan(LARGE, HERE), ModelLoadError("failed to allocate"), Attempt()
    margins = []
    for _ in range(3):
        found = next_attempt(last, plan, error, free_before=FREE, free_now=FREE)
        assert found is not None
        margins.append(found.extra_margin_bytes)
        last = found
    assert margins == [STEP_BYTES, 2 * STEP_BYTES, 4 * STEP_BYTES]
    taken = [FREE[0] - GIB]
    assert next_attempt(last, plan, error, free_before=FREE, free_now=taken) == last
