"""A plan in sentences and on its page: reasons are of this plan, and each wish is in them."""

import re
from pathlib import Path

import msgspec
import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.gguf_file import read_info
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts, model_facts
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.words import explain
from tests.plan.machines import GIB, LARGE, SMALL, gpu, machine, try_plan

pytestmark = pytest.mark.quick

DOCS = Path(__file__).parents[2] / "docs/plan.md"
ROW = re.compile(r"^\| (?:([\d.]+) GiB|none), (\d+) GiB \| (.*) \| (.*) \|$", re.MULTILINE)


def reasons(options: PlanOptions, here: Machine | None = None) -> list[str]:
    here = here or machine(gpu(16))
    return explain(SMALL, here, options, make_plan(SMALL, here, options))


@pytest.mark.parametrize("wishes", [{"n_gpu_layers": 20}, {"n_gpu_layers": 0, "n_cpu_moe": 3}])
def test_wishes_that_have_no_effect_are_named(wishes: dict[str, int]) -> None:
    assert "no effect" in reasons(PlanOptions(**wishes), machine())[0]  # type: ignore[arg-type]
    assert "no effect" not in reasons(PlanOptions(), machine())[0]


def test_layers_on_the_host_and_experts_in_ram_are_told_apart() -> None:
    """Of 24 layers 15 are on the host, and of 5 more the experts; the sizes are of each alone."""
    host, experts, *_ = reasons(PlanOptions(n_gpu_layers=10, n_cpu_moe=20))
    assert host == "The first 15 of 24 layers are on the host, as requested."
    assert experts.startswith("Attention, cache and head of the others are in VRAM; the experts")
    assert "of 5 of 24 layers, 2.0 GiB, are in RAM, as requested" in experts


def test_what_decides_is_named() -> None:
    """A limit of VRAM, a card that is left out, a wished context."""
    first = {gib: reasons(PlanOptions(vram_bytes=gib * GIB))[0] for gib in (8, 1, 99)}
    assert "as no more than 8.0 GiB of a GPU may be used" in first[8]
    assert first[1].startswith("1.0 GiB of each GPU, as requested, is too small")
    assert "may be used" not in first[99]
    left_out = "GPU 1 (card 1) is left out: too small, or slower than without it."
    assert left_out in reasons(PlanOptions(), machine(gpu(24), gpu(2, index=1)))
    for n_ctx, text in (
        (8192, "as requested"),
        (5000, "5,000 were requested; it grows by 256"),
        (10**6, "the most"),
    ):
        assert text in reasons(PlanOptions(n_ctx=n_ctx))[1]


def in_words(facts: ModelFacts, free_gib: str, ram_gib: str) -> str:
    cards = [gpu(float(free_gib) + 0.5, float(free_gib))] if free_gib else []
    plan = try_plan(facts, machine(*cards, ram_gib=float(ram_gib)), PlanOptions())
    if plan is None:
        return "refused"
    n = facts.n_layers - len(plan.placement.host_experts) - len(plan.placement.host_parts)
    where = "all" if plan.vram_share == 1 else f"experts of {n} of {facts.n_layers} layers"
    where = f"{where} in VRAM" if plan.uses_gpu else "CPU" if plan.host.weights else "CPU, mapped"
    return f"{where}, {plan.shape.n_ctx:,} tokens"


def test_the_table_of_the_page_has_the_plans_that_are_made() -> None:
    rows = ROW.findall(DOCS.read_text())
    assert len(rows) == 5
    for free_gib, ram_gib, small, large in rows:
        found = in_words(SMALL, free_gib, ram_gib), in_words(LARGE, free_gib, ram_gib)
        assert found == (small, large)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 10**12),
        ("expert_count", 0),
        ("expert_used_count", 99),
        ("context_length", 0),
        ("context_length", "y"),
        ("embedding_length", 0),
    ],
)
def test_impossible_headers_are_refused(nano_gguf: Path, key: str, value: object) -> None:
    info = read_info(nano_gguf)
    model_facts(info)
    metadata = info.metadata | {f"{info.architecture}.{key}": value}
    with pytest.raises(ModelLoadError, match="is not a gpt-oss"):
        model_facts(msgspec.structs.replace(info, metadata=metadata))
