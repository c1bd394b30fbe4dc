"""What `gptoss run` says of models that could be fetched."""

import pytest

from gptoss_local.cli._first_model import _words
from gptoss_local.hardware import Machine
from gptoss_local.plan.facts import ModelFacts
from gptoss_local.plan.planner import make_plan
from tests.plan.machines import LARGE, SMALL, gpu, machine

TWO_CARDS = machine(gpu(12), gpu(12, index=1))
NOT_PINNED = machine(gpu(12), pinnable_bytes=0)
SMALL_RAM = machine(gpu(12), ram_gib=32)


@pytest.mark.parametrize(
    ("facts", "here", "text"),
    [
        (SMALL, TWO_CARDS, "all on the GPU, 131,072"),
        (LARGE, NOT_PINNED, "partly on the GPU, partly in RAM"),
        (LARGE, SMALL_RAM, "about 2.8 tokens/s"),
        (SMALL, machine(), "without a GPU"),
    ],
)
def test_where_it_would_be(facts: ModelFacts, here: Machine, text: str) -> None:
    assert text in _words(make_plan(facts, here))
