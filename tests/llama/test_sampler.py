"""Samplers on the CPU and on the device: the same draws where the distribution is not flat."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from msgspec.structs import replace

from gptoss_local.base.errors import ComputeError, EngineError
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Batch, Context, Model, Sampler
from gptoss_local.engine.llama.chains import Chains
from gptoss_local.engine.llama.sampler import N_BLOCK
from tests.engine.run import make_context

PROMPT = [12845, 591, 220, 16, 316, 220, 455]
PLAIN = SamplingParams(temperature=4, seed=7)  # nano is too sure for less
HOT = SamplingParams(temperature=6, seed=2)
TOP_20 = replace(HOT, top_k=20)


@pytest.fixture(scope="module")
def model(bare_gguf: Path) -> Iterator[Model]:
    model = Model(bare_gguf)
    yield model
    model.close()


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = make_context(model, n_ctx=512, n_seq_max=2)
    yield context
    context.close()


def generate(
    context: Context, sampler: Sampler, tokens: list[int], n: int, seq_id: int = 0
) -> list[int]:
    """Continue from `tokens`, of which all but the last are cached."""
    generated: list[int] = []
    while len(generated) < n:
        pending = [*tokens, *generated]
        n_past = context.positions(seq_id)[1] + 1
        context.decode(pending[n_past:], position=n_past, seq_id=seq_id)
        generated.append(sampler.sample(context))
    return generated


@pytest.mark.parametrize("temperature", [1e-7, 1e-38, 1e-45, 5e-324, -1.0])
def test_next_to_no_temperature_is_none(context: Context, temperature: float) -> None:
    """Logits divided by it are infinite in float32, and infinities have no difference."""
    wanted = generate(context, Sampler(SamplingParams(temperature=0)), PROMPT, 5)
    context.remove(0)
    assert generate(context, Sampler(SamplingParams(temperature=temperature)), PROMPT, 5) == wanted


@pytest.mark.parametrize(
    "params",
    [*(SamplingParams(4, min_p=p) for p in (0.999999, 1, 7)), SamplingParams(4, top_p=0)],
    ids=str,
)
def test_a_filter_keeps_the_likeliest_token_on_the_device(
    context: Context, params: SamplingParams
) -> None:
    wanted = generate(context, Sampler(SamplingParams(temperature=0)), PROMPT, 5)
    sampler = Sampler(params)
    assert sampler.bind(context, 1)
    assert generate(context, sampler, PROMPT, 5, seq_id=1) == wanted


@pytest.mark.parametrize("top_k", [201_089, 2**31 - 1])
def test_more_candidates_than_tokens_are_all_of_them(context: Context, top_k: int) -> None:
    alone, sampler = Sampler(HOT), Sampler(replace(HOT, top_k=top_k))
    assert alone.bind(context, 0)
    assert sampler.bind(context, 1)
    wanted = generate(context, alone, PROMPT, 5)
    assert generate(context, sampler, PROMPT, 5, seq_id=1) == wanted


@pytest.mark.parametrize("params", [PLAIN, HOT], ids=str)
def test_cpu_draws_by_probability(context: Context, params: SamplingParams) -> None:
    context.decode(PROMPT, position=0)
    logits = context.logits(-1).astype(np.float64) / params.temperature
    expected = 4000 * np.exp(logits - logits.max())
    expected /= np.exp(logits - logits.max()).sum()
    sampler, again = Sampler(params), Sampler(params)
    drawn = [sampler.sample(context) for _ in range(4000)]
    assert drawn[:50] == [again.sample(context) for _ in range(50)]
    counts = np.bincount(drawn, minlength=len(logits))
    often = expected >= 5
    assert often.sum() >= 3
    errors = (counts[often] - expected[often]) / np.sqrt(expected[often])
    assert np.abs(errors).max() < 4.5
    assert counts[~often].sum() == pytest.approx(expected[~often].sum(), rel=0.1, abs=15)


@pytest.mark.parametrize("token", [0, N_BLOCK - 1, N_BLOCK, -1])
def test_cpu_draws_at_the_edges_of_blocks(context: Context, token: int) -> None:
    context.decode(PROMPT, position=0)
    logits = context.logits(-1)
    logits[:] = -200
    logits[token] = 10
    assert Sampler(PLAIN).sample(context) == token % len(logits)


def test_chain_of_the_same_kind_is_taken_over(context: Context) -> None:
    """With the newcomer's seed, and without a new graph."""
    alone, first, second = Sampler(HOT), Sampler(SamplingParams(temperature=6)), Sampler(HOT)
    alone.bind(context, 1)
    wanted = generate(context, alone, PROMPT, 12, seq_id=1)
    first.bind(context, 0)
    chain = context.chains.get(0)
    first.close()
    second.bind(context, 0)
    assert context.chains.get(0) is chain
    assert generate(context, second, PROMPT, 12) == wanted
    second.close()
    Sampler(SamplingParams(temperature=4)).bind(context, 0)
    assert context.chains.get(0) is not chain


@pytest.mark.parametrize("top_k", [1, 20, 40, 64])
@pytest.mark.parametrize("others", [{}, {"top_p": 0.9, "min_p": 0.02}], ids=str)
def test_a_small_top_k_draws_the_same_where_the_device_only_keeps_the_likeliest(
    context: Context, top_k: int, others: dict[str, float]
) -> None:
    """Also when it comes back to the CPU in the middle, with its random state."""
    params = SamplingParams(temperature=6, seed=5, top_k=top_k, **others)
    alone, bound = Sampler(params), Sampler(params)
    wanted = generate(context, alone, PROMPT, 24)
    assert bound.bind(context, 1)
    drawn = generate(context, bound, PROMPT, 12, seq_id=1)
    with pytest.raises(EngineError, match="no logits"):
        context.logits(-1)
    bound.unbind()
    context.chains.detach(1)
    context.remove(1, len(PROMPT) + 10)
    drawn += generate(context, bound, [*PROMPT, *drawn], 12, seq_id=1)
    assert drawn == wanted
    assert len(set(wanted)) > (1 if top_k == 1 else 5)
    alone.close()
    bound.close()


def test_a_device_without_top_k_leaves_it_to_the_cpu(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, bound = Sampler(TOP_20), Sampler(TOP_20)
    wanted = generate(context, alone, PROMPT, 8)
    on_cpu = llama_cpp.llama_sampler_init_typical(0.5, 1)  # which runs on no device
    monkeypatch.setattr(llama_cpp, "llama_sampler_init_top_k", lambda k: on_cpu)
    assert bound.bind(context, 1)
    assert generate(context, bound, PROMPT, 8, seq_id=1) == wanted
    assert len(context.logits(-1)) == context.n_vocab == len(context.likeliest(-1)[0])


def test_a_row_of_which_nothing_was_kept_is_an_error(context: Context) -> None:
    sampler = Sampler(TOP_20)
    assert sampler.bind(context, 0)
    context.decode(PROMPT, position=0, seq_id=1)
    with pytest.raises(ComputeError, match="kept no tokens"):
        sampler.sample(context)


def test_a_small_top_k_needs_no_chain_of_its_own(context: Context) -> None:
    for params in (SamplingParams(top_k=40), SamplingParams(0.5, 0.9, 20, 0.1, seed=3)):
        sampler = Sampler(params)
        assert sampler.bind(context, 0)
        sampler.close()
    chain = context.chains.get(0)
    assert Sampler(SamplingParams(top_k=64)).bind(context, 0)
    assert context.chains.get(0) is chain
    assert Sampler(SamplingParams(top_k=65)).bind(context, 0)
    assert context.chains.get(0) is not chain


@pytest.fixture
def needed(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """How often graphs were built with each row of each sequence's chain, 0 if without it."""
    counts: Counter[tuple[int, int]] = Counter()
    needs = Chains.needs

    def spy(chains: Chains, seq_id: int, i_row: int) -> bool:
        is_needed = needs(chains, seq_id, i_row)
        counts[seq_id, i_row] += is_needed
        return is_needed

    monkeypatch.setattr(Chains, "needs", spy)
    return counts


def test_chains_without_work_are_left_out(
    context: Context, needed: Counter[tuple[int, int]]
) -> None:
    """And are there again when their sequence has an output; every draw is as it is alone."""
    alone = Sampler(HOT)
    alone.bind(context, 0)
    wanted = generate(context, alone, PROMPT, 12)
    context.remove(0)
    samplers = [Sampler(HOT), Sampler(HOT)]
    for seq_id, sampler in enumerate(samplers):
        assert sampler.bind(context, seq_id)
    drawn = [
        generate(context, samplers[0], PROMPT, 6),
        generate(context, samplers[1], PROMPT, 6, 1),
    ]
    batch = Batch(2)
    for active in ((0, 1), (0,), (1,), (0, 1)):
        needed.clear()
        for _ in range(2):
            batch.clear()
            for seq_id in active:
                batch.add(drawn[seq_id][-1], len(PROMPT) + len(drawn[seq_id]) - 1, seq_id)
            context.decode_batch(batch)
            for row, seq_id in enumerate(active):
                drawn[seq_id].append(samplers[seq_id].sample(context, row))
        assert {seq_id for (seq_id, _), n in needed.items() if n} == set(active)
    assert drawn[0] == drawn[1] == wanted


def test_graphs_of_prompts_have_the_rows_that_memory_is_reserved_with(
    bare_gguf: Path, needed: Counter[tuple[int, int]]
) -> None:
    """One row of each chain, whichever has an output, so none needs memory of its own."""
    model, outputs = Model(bare_gguf), {"n_outputs_max": 8, "n_outputs_max_per_seq": 4}
    context = make_context(model, n_ctx=512, n_seq_max=2, **outputs)
    for seq_id in range(2):
        Sampler(HOT).bind(context, seq_id)
    context.plan_memory()
    context.warm_up()
    assert needed[0, 0] > 0 < needed[1, 0]
    assert needed.total() == needed[0, 0] + needed[1, 0]
    assert (0, 1) in needed  # llama.cpp would reserve for more
    batch = Batch(8)
    for seq_id, n_outputs in ((0, 0), (0, 1), (1, 0), (1, 1)):
        needed.clear()
        batch.clear()
        batch.extend([5, 6, 7], 3 * n_outputs, seq_id, n_outputs=n_outputs)
        context.decode_batch(batch)
        assert needed == {(0, 0): 1, (1, 0): 1}
    batch.clear()
    batch.extend([5, 6, 7], 6, 0, n_outputs=3)  # a draft
    needed.clear()
    context.decode_batch(batch)
    assert {row for row, n in needed.items() if n} == {(0, 0), (0, 1), (0, 2)}
    model.close()
