"""Estimated speeds against published figures and our own on an H200; each says where it is from."""

import pytest

from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan import speed as speed_module
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.hypothetical import card_named
from gptoss_local.machine.plan.memory import Shape
from gptoss_local.machine.plan.options import Objective
from gptoss_local.machine.plan.placement import Placement, iter_placements
from gptoss_local.machine.plan.speed import HostWeights, Speed, estimate_speed
from tests.plan.machines import GIB, LARGE, SMALL, gpu, machine

pytestmark = pytest.mark.quick


# Memory bandwidth, CUDA cores, boost clock, compute capability, PCIe.
CARDS = {
    "RTX 3090": (936e9, 10496, 1.695e9, (8, 6), 4, 16),
    "RTX 4060 Ti": (288e9, 4352, 2.54e9, (8, 9), 4, 8),
    "RTX 4080 Super": (736e9, 10240, 2.55e9, (8, 9), 4, 16),
    "RTX 4090": (1008e9, 16384, 2.52e9, (8, 9), 4, 16),
    "RTX 5060 Ti": (448e9, 4608, 2.57e9, (12, 0), 5, 8),
    "RTX 5080": (960e9, 10752, 2.62e9, (12, 0), 5, 16),
    "RTX 5090": (1792e9, 21760, 2.41e9, (12, 0), 5, 16),
    "H200": (4917e9, 16896, 1.98e9, (9, 0), 5, 16),
}


def known_card(name: str) -> Gpu:
    bandwidth, n_cores, clock_hz, capability, generation, width = CARDS[name]
    return gpu(
        16,
        bandwidth_bytes_s=bandwidth,
        n_cores=n_cores,
        clock_hz=clock_hz,
        compute_capability=capability,
        pcie_generation=generation,
        pcie_width=width,
    )


def estimate(
    card: str, n_batch: int, n_host_layers: int = 0, facts: ModelFacts = SMALL, **more: object
) -> Speed:
    """With the experts of some layers in pinned RAM."""
    n_layers = facts.n_layers + 1
    placement = Placement(
        n_gpu_layers=n_layers,
        layers_per_gpu=(n_layers,),
        host_experts=tuple(range(n_host_layers)),
    )
    shape = Shape(n_ctx=32_768, n_batch=n_batch, n_seq=1, n_outputs=16)
    here = machine(known_card(card), ram_gib=96, **more)
    return estimate_speed(facts, shape, placement, here, HostWeights(pinned=True))


# Tokens a second after so many: of an answer's first ones (llama-bench tg128), or after 4,096.
# Where owners or reviews differ, the highest, which nothing else on the card slowed.
PUBLISHED: list[tuple[str, ModelFacts, int, float]] = [
    ("RTX 3090", SMALL, 4096, 147.5),  # llama.cpp pull request 20586
    ("RTX A5000", SMALL, 128, 138),  # llama.cpp discussion 15451
    ("RTX 4060 Ti 16GB", SMALL, 4096, 63),  # owners' reports, vettedconsumer.com
    ("RTX 4080", SMALL, 4096, 166),  # ik_llama.cpp discussion 758
    ("RTX 4080", SMALL, 128, 186),
    ("RTX 4080 Super", SMALL, 4096, 139),  # hardware-corner.net
    ("RTX 4090", SMALL, 128, 187),  # llama.cpp discussion 16834
    ("RTX 5060 Ti 16GB", SMALL, 4096, 92),  # vettedconsumer.com
    ("RTX 5070 Ti", SMALL, 4096, 156),
    ("RTX 5080", SMALL, 4096, 172),  # hardware-corner.net
    ("RTX 5090", SMALL, 4096, 298),
    ("RTX PRO 6000", SMALL, 128, 306),  # llama.cpp issue 25262, Windows
    ("RTX PRO 6000", SMALL, 128, 391),  # llama.cpp discussion 16991, Linux
    ("H100", SMALL, 128, 316),  # ours
    ("H100", LARGE, 128, 219),
    ("GB10", SMALL, 128, 83),  # llama.cpp's benches
    ("GB10", LARGE, 128, 57.9),
]


def test_answers_are_as_fast_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = []
    for name, facts, depth, published in PUBLISHED:
        monkeypatch.setattr(speed_module, "N_PROMPT", depth)
        placement = Placement(n_gpu_layers=(n := facts.n_layers + 1), layers_per_gpu=(n,))
        shape = Shape(n_ctx=32_768, n_batch=512, n_seq=1, n_outputs=16)
        here = machine(card_named(name))
        found = estimate_speed(facts, shape, placement, here, HostWeights()).decode_tok_s
        errors.append(abs(found / published - 1))
        assert errors[-1] <= 0.21, (name, found, published)
    assert sum(error <= 0.12 for error in errors) >= 15


@pytest.mark.parametrize(
    ("card", "facts", "n_host_layers", "n_batch", "prefill", "decode"),
    [
        ("RTX 3090", SMALL, 0, 512, 4739, None),  # llama.cpp pull request 20586
        ("RTX 4080 Super", SMALL, 0, 512, 6364, None),  # hardware-corner.net
        ("RTX 4090", SMALL, 0, 2048, 10_900, None),  # llama.cpp pull request 15631
        ("RTX 5080", SMALL, 0, 512, 9146, None),  # hardware-corner.net
        ("H200", SMALL, 0, 512, 11_676, None),  # ours
        ("H200", SMALL, 0, 2048, 15_153, None),
        ("RTX 3090", LARGE, 26, 512, 380, 32),  # ai-maestro.online
        ("RTX 3090", LARGE, 25, 2048, 1112, None),
        ("RTX 3090", LARGE, 26, 4096, 1682, None),
        ("H200", LARGE, 31, 2048, 2205, 27),  # ours, with 15.6 GiB free
        ("H200", LARGE, 31, 4096, 3186, 27),
        ("H200", SMALL, 5, 1024, 7074, 88),  # `bench/offload.py` over HTTP, with 11 GiB free,
        ("H200", SMALL, 14, 1024, 4949, 45),  # 7.5,
        ("H200", LARGE, 32, 4096, 2681, 20.7),  # and 15.6
    ],
)
def test_prompts_and_answers(
    card: str,
    facts: ModelFacts,
    n_host_layers: int,
    n_batch: int,
    prefill: float,
    decode: float | None,
) -> None:
    cores = {"n_performance_cores": 16, "n_cores": 16} if card == "H200" else {}
    speed = estimate(card, n_batch, n_host_layers, facts, **cores)
    assert speed.prefill_tok_s == pytest.approx(prefill, rel=0.3)
    assert decode is None or speed.decode_tok_s == pytest.approx(decode, rel=0.3)
    assert facts is SMALL or speed.prefill_bound == "PCIe"


@pytest.mark.parametrize(
    ("n_gpu_layers", "n_batch", "prefill", "decode"),
    [(10, 4096, 6498, 16.9), (20, 2048, 7970, 43.8)],
)
def test_layers_that_are_on_the_host_as_a_whole(
    n_gpu_layers: int, n_batch: int, prefill: float, decode: float
) -> None:
    """`bench/offload.py` with GPTOSS_GPU_LAYERS on an H200, the means of two runs."""
    here = machine(known_card("H200"), n_cores=16, n_performance_cores=16)
    placement = Placement(n_gpu_layers=n_gpu_layers, layers_per_gpu=(n_gpu_layers,))
    shape = Shape(n_ctx=131_072, n_batch=n_batch, n_seq=4, n_outputs=19)
    speed = estimate_speed(SMALL, shape, placement, here, HostWeights(pinned=True))
    assert speed.prefill_tok_s == pytest.approx(prefill, rel=0.3)
    assert speed.decode_tok_s == pytest.approx(decode, rel=0.3)


def test_offload_pays_from_some_tokens() -> None:
    """And later over a narrow link: a batch has to be worth the transfer."""
    wide, narrow, h200 = (
        estimate(card, 512, 26, LARGE) for card in ("RTX 3090", "RTX 4060 Ti", "H200")
    )
    assert 16 <= wide.offload_min_batch < narrow.offload_min_batch <= 512
    assert h200.offload_min_batch == 8  # or fewer, as measured there


@pytest.mark.parametrize(
    ("facts", "steps_ms"),
    [
        (SMALL, {1: 3.15, 4: 6.16, 8: 10.2, 16: 18.6}),
        (LARGE, {1: 4.72, 4: 9.06, 8: 14.7, 16: 29}),  # 16: in two steps of 8; 40.7 in one
    ],
)
def test_answers_at_the_same_time(facts: ModelFacts, steps_ms: dict[int, float]) -> None:
    """As measured on an H100 by sequences of a step, everything in VRAM."""
    card = {"bandwidth_bytes_s": 3350e9, "n_cores": 16_896, "clock_hz": 1.98e9}
    here = machine(gpu(80, 79, compute_capability=(9, 0), **card))
    for n_seq, ms in steps_ms.items():
        shape = Shape(n_ctx=131_072, n_batch=512, n_seq=n_seq, n_outputs=31)
        placement = next(iter_placements(facts, shape, [79 * GIB]))
        objective = Objective(n_seq=n_seq, n_together=n_seq)
        speed = estimate_speed(facts, shape, placement, here, HostWeights(), objective)
        assert 1e3 * n_seq * speed.write_s / 512 == pytest.approx(ms, rel=0.15)
