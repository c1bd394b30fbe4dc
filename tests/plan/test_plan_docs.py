"""The table of docs/plan.md."""

import re
from pathlib import Path

from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.options import PlanOptions
from tests.plan.machines import LARGE, SMALL, gpu, machine, try_plan

DOCS = Path(__file__).parents[2] / "docs/plan.md"
ROW = re.compile(r"^\| (?:([\d.]+) GiB|none), (\d+) GiB \| (.*) \| (.*) \|$", re.MULTILINE)


def in_words(facts: ModelFacts, free_gib: str, ram_gib: str) -> str:
    cards = [gpu(float(free_gib) + 0.5, float(free_gib))] if free_gib else []
    plan = try_plan(facts, machine(*cards, ram_gib=float(ram_gib)), PlanOptions())
    if plan is None:
        return "refused"
    n = facts.n_layers - len(plan.placement.host_experts) - len(plan.placement.host_parts)
    where = "all" if plan.vram_share == 1 else f"experts of {n} of {facts.n_layers} layers"
    where = f"{where} in VRAM" if plan.uses_gpu else "CPU" if plan.host.weights else "CPU, mapped"
    return f"{where}, {plan.shape.n_ctx:,} tokens"


def test_its_plans_are_those_that_are_made() -> None:
    rows = ROW.findall(DOCS.read_text())
    assert len(rows) == 5
    for free_gib, ram_gib, small, large in rows:
        found = in_words(SMALL, free_gib, ram_gib), in_words(LARGE, free_gib, ram_gib)
        assert found == (small, large)
