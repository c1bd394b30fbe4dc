"""Imagined machines for the planner's tests."""

from hypothesis import strategies as st

from gptoss_local.base.errors import DoesNotFitError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.facts import ModelFacts, published_facts
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.result import Plan

GIB = 2**30
MIB = 2**20
SMALL, LARGE = published_facts(24, 32), published_facts(36, 128)
FACTS = st.sampled_from([SMALL, LARGE])


def gpu(total_gib: float, free_gib: float | None = None, index: int = 0, **more: object) -> Gpu:
    """A card like an RTX 5070, with as much memory as wanted."""
    fields: dict[str, object] = {
        "bandwidth_bytes_s": 672e9,
        "pcie_generation": 4,
        "pcie_width": 16,
        "n_cores": 6144,
        "clock_hz": 2.5e9,
        "compute_capability": (12, 0),
    }
    free = total_gib - 0.5 if free_gib is None else free_gib
    return Gpu(
        index=index,
        name=f"card {index}",
        total_bytes=round(total_gib * GIB),
        free_bytes=round(free * GIB),
        **(fields | more),  # type: ignore[arg-type]
    )


def machine(*gpus: Gpu, ram_gib: float = 64, **more: object) -> Machine:
    fields: dict[str, object] = {
        "backend": "CUDA",
        "n_cores": 8,
        "n_performance_cores": 8,
        "has_avx2": True,
        "total_bytes": round(ram_gib * GIB),
        "available_bytes": round(ram_gib * 0.92 * GIB),
        "pinnable_bytes": round(ram_gib * 0.92 * GIB),
        "disk": "nvme",
    }
    return Machine(gpus=gpus, **(fields | more))  # type: ignore[arg-type]


@st.composite
def machines(draw: st.DrawFn, min_gpus: int = 0, max_gpus: int = 3) -> Machine:
    """PCs with none to three cards, of which any figure may be unknown."""
    gpus = []
    for i in range(draw(st.integers(min_gpus, max_gpus))):
        total = draw(st.integers(2 * 1024, 96 * 1024)) / 1024
        gpus.append(
            gpu(
                total,
                total * draw(st.floats(0.3, 1.0)),
                i,
                bandwidth_bytes_s=draw(st.sampled_from([None, 288e9, 672e9, 1792e9])),
                pcie_generation=draw(st.sampled_from([None, 3, 4, 5])),
                pcie_width=draw(st.sampled_from([None, 4, 8, 16])),
                n_cores=draw(st.sampled_from([None, 3072, 21760])),
                compute_capability=draw(st.sampled_from([None, (7, 5), (8, 6), (12, 0)])),
                is_wddm=draw(st.sampled_from([None, False, True])),
            )
        )
    ram_gib = draw(st.integers(4, 192))
    available = round(ram_gib * GIB * draw(st.floats(0.3, 0.98)))
    return machine(
        *gpus,
        ram_gib=ram_gib,
        available_bytes=available,
        pinnable_bytes=draw(st.sampled_from([None, available, ram_gib * GIB // 2])),
        n_cores=draw(st.sampled_from([None, 2, 8, 24])),
        n_performance_cores=draw(st.sampled_from([None, 2, 8])),
        n_logical_cores=draw(st.sampled_from([None, 2, 16, 32])),
        has_avx2=draw(st.booleans()),
        disk=draw(st.sampled_from([None, "nvme", "rotating"])),
        backend=draw(st.sampled_from(["CUDA", "CUDA", "CUDA", "CPU"])),
    )


def try_plan(facts: ModelFacts, here: Machine, options: PlanOptions) -> Plan | None:
    try:
        return make_plan(facts, here, options)
    except DoesNotFitError:
        return None
