"""Predictions for steps: as measured, and in between."""

import msgspec
import pytest

from gptoss_local.cluster.capacity.profile import Profile, from_benchmark
from gptoss_local.runner.measuring import AtDepth, AtWidth

pytestmark = pytest.mark.quick

N_BATCH = 512
TRUE = Profile(
    n_ctx=16_384,
    n_batch=N_BATCH,
    n_seq=4,
    decode=((1, 0.004), (2, 0.006), (4, 0.009)),
    prefill=((1, 0.004), (32, 0.010), (512, 0.100)),
    row_cell_s=1e-6,
    token_cell_s=1e-7,
)


def prompt_s(profile: Profile, n_tokens: int, n_cached: int) -> float:
    seconds = 0.0
    for n_past in range(0, n_tokens, N_BATCH):
        n = min(N_BATCH, n_tokens - n_past)
        seconds += profile.step_s([], [(n_past, n)], n_cached + n_past)
    return seconds


def measured(profile: Profile) -> Profile:
    """Return the profile from a benchmark of a machine that has exactly this profile."""
    depths = [
        AtDepth(
            n,
            n / prompt_s(profile, n, n_cached),
            1 / profile.step_s([n + 32], [], n + 32 + n_cached),
            n_cached,
        )
        for n, n_cached in ((128, 0), (512, 600), (2048, 1800), (8192, 5000))
    ]
    widths = [
        AtWidth(n, n / profile.step_s([288] * n, [], n * 288 + 900), n_cells_cached=900)
        for n in (1, 2, 4)
    ]
    return from_benchmark(
        depths, widths, n_ctx=16_384, n_batch=N_BATCH, n_seq=4, has_gpu=profile.has_gpu
    )


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_benchmark_gives_the_profile_back(has_gpu: bool) -> None:
    true = msgspec.structs.replace(TRUE, has_gpu=has_gpu)
    found = measured(true)
    for depths, chunks, n_held in (
        ([300], [], 5000),
        ([300, 900, 10], [], 3000),
        ([], [(0, 100)], 0),
        ([], [(4096, 512)], 9000),
        ([40, 50], [(100, 60), (0, 200)], 450),
    ):
        expected = true.step_s(depths, chunks, n_held)
        assert found.step_s(depths, chunks, n_held) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("has_gpu", "share"), [(False, 0.25), (True, 1)])
def test_a_cpu_does_little_for_cells_of_others(has_gpu: bool, share: float) -> None:
    profile = msgspec.structs.replace(TRUE, has_gpu=has_gpu)

    def more_s(chunks: list[tuple[int, int]]) -> float:
        before = [(0, n) for _, n in chunks]
        return profile.step_s([], chunks, 4000) - profile.step_s([], before, 0)

    whole_s = 1e-7 * 100 * 4000
    assert more_s([(4000, 100)]) == pytest.approx(whole_s)
    assert more_s([(0, 50), (0, 50)]) == pytest.approx(share * whole_s)
    assert more_s([(0, 100)]) == pytest.approx(whole_s if has_gpu else 0)


def test_a_stream_makes_a_tile_of_a_prompt_look_at_its_cells() -> None:
    """On a CPU, and if there are enough tokens for tiles."""

    def more_s(n_tokens: int) -> float:
        near, far = (TRUE.step_s([n], [(0, n_tokens)], 4000) for n in (0, 1000))
        return far - near - (TRUE.step_s([1000], [], 4000) - TRUE.step_s([0], [], 4000))

    assert more_s(200) == pytest.approx(1e-7 * 64 * 1000)
    assert more_s(20) == pytest.approx(0)


def test_noise_makes_nothing_free_or_negative() -> None:
    """Longer prompts that were faster, wide steps that were faster than narrow ones."""
    depths = [AtDepth(128, 500, 90), AtDepth(512, 2000, 100), AtDepth(2048, 3000, 110)]
    widths = [AtWidth(1, 100), AtWidth(2, 400)]
    found = from_benchmark(depths, widths, n_ctx=4096, n_batch=512, n_seq=2, has_gpu=False)
    for n in (1, 2, 31, 32, 33, 512):
        assert found.step_s([], [(0, n)], 0) > 0
        assert found.step_s([5], [(0, n)], 4000) >= found.step_s([5], [], 4000) > 0
