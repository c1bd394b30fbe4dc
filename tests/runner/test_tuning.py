"""Conclusions from the figures of `gptoss tune`."""

import pytest

from gptoss_local.base.types import OffloadTimes
from gptoss_local.engine.protocol import Tuned
from gptoss_local.machine.plan.facts import published_facts
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.runner.measuring import judge
from tests.plan.machines import gpu, machine

pytestmark = pytest.mark.quick

LARGE = published_facts(36, 128)


@pytest.mark.parametrize(
    ("offload", "min_batch", "decode_tok_s"),
    [
        (((1, 0.04, 0.05), (2, 0.09, 0.06), (4, 0.2, 0.07)), 5, 25.0),
        (((1, 0.04, 0.05), (4, 0.1, 0.2), (8, 0.3, 0.2)), 6, 25.0),
        (((1, 0.04, 0.02), (2, 0.09, 0.03), (4, None, 0.05)), 1, 50.0),
    ],
)
def test_answers_are_computed_where_one_token_is_faster(
    offload: OffloadTimes, min_batch: int, decode_tok_s: float
) -> None:
    plan = make_plan(LARGE, machine(gpu(16, 15.5)))
    n_decode, n_prefill = plan.n_threads_decode, plan.n_threads_prefill
    tuned = Tuned(
        decode=((n_decode, 25.0),), prefill=((n_prefill, 1000.0),), offload=offload, step_costs=None
    )

    tuning = judge(LARGE, plan, tuned)

    assert tuning.offload_min_batch == min_batch
    assert tuning.correct(plan.speed).decode_tok_s == pytest.approx(decode_tok_s)
    assert tuning.correct(plan.speed).prefill_tok_s == pytest.approx(1000)
