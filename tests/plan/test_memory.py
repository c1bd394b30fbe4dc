"""Predicted memory against llama.cpp's own figures: never less than it takes, at most 3 % more."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.base.types import CacheType, ModelParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.llama.library import whole_log
from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from gptoss_local.machine.plan.memory import (
    Shape,
    all_cache_bytes,
    cache_bytes,
    compute_bytes,
    head_bytes,
    n_cells,
)
from tests.lora import ATTENTION, EXPERTS, OTHERS, random_factors, write_lora

MIB = 2**20
GRID = [
    Shape(n_ctx=n_ctx, n_batch=n_batch, n_seq=n_seq, n_outputs=n_seq + n_draft)
    for n_ctx, n_batch, n_seq, n_draft in itertools.product(
        (2048, 5000, 32_768, 131_072), (64, 512, 4096), (1, 16, 64), (0, 15)
    )
]


def make_context(model: Model, shape: Shape) -> Context:
    """As an engine has it that is loaded as planned."""
    return Context(model, shape.context_params(n_threads_prefill=1, n_threads_decode=1))


@pytest.fixture(scope="module", params=["20b", "120b"])
def unallocated(
    request: pytest.FixtureRequest, real_sizes: dict[str, Path]
) -> Iterator[tuple[Model, ModelFacts]]:
    """A model of which llama.cpp computes the sizes without allocating anything."""
    path = real_sizes[request.param]
    model = Model(path, ModelParams(load_mode="none", no_alloc=True))
    yield model, read_facts(path)
    model.close()


@pytest.mark.parametrize(
    "shapes", [GRID[::7], pytest.param(GRID, marks=pytest.mark.nightly)], ids=len
)
def test_contexts_take_what_was_predicted(
    unallocated: tuple[Model, ModelFacts], shapes: list[Shape]
) -> None:
    model, facts = unallocated
    assert 0 <= facts.weight_bytes - model.size_bytes < 32 * 600  # the padding of the file
    for shape in shapes:
        context = make_context(model, shape)
        cells = [int(n) for n in re.findall(r"MiB \( *(\d+) cells", whole_log())]
        caches = re.findall(r"size = +([0-9.]+) MiB \( *\d+ cells", whole_log())
        held = sum(round(float(n) * MIB) for n in caches)
        (compute,) = (b.n_bytes for b in context.buffers if b.purpose == "compute")
        context.close()
        assert n_cells(facts, shape) == tuple(cells)
        assert all_cache_bytes(facts, shape) == pytest.approx(held, abs=0.02 * MIB)
        predicted = compute_bytes(facts, shape)
        assert predicted >= compute - 0.01 * MIB, shape
        # 3 % of weights, cache and buffer, and of the buffer alone where it is the larger part
        whole = facts.weight_bytes + held + compute
        assert predicted - compute <= 0.03 * whole, shape
        if shape.n_batch >= 512 and shape.n_ctx >= 32_768 and shape.n_seq <= 16:
            assert predicted <= 1.05 * compute, shape


def test_layers_slide_as_the_models_authors_say(facts: dict[str, ModelFacts]) -> None:
    """Sums do not tell which ones do; where layers are dealt out it matters."""
    from transformers import GptOssConfig

    shape = Shape(n_ctx=131_072, n_batch=512, n_seq=1, n_outputs=1)
    for each in facts.values():
        config = GptOssConfig(num_hidden_layers=each.n_layers)
        sizes = [cache_bytes(each, shape, layer) for layer in range(each.n_layers)]
        sliding = [size == min(sizes) for size in sizes]
        assert sliding == [kind == "sliding_attention" for kind in config.layer_types]


@pytest.mark.parametrize("cache_type", ["q8_0", "q4_0", "bf16"])
def test_caches_of_other_types(
    unallocated: tuple[Model, ModelFacts], cache_type: CacheType
) -> None:
    model, facts = unallocated
    shape = Shape(n_ctx=32_768, n_batch=512, n_seq=4, n_outputs=19, cache_type=cache_type)
    context = make_context(model, shape)
    (compute,) = (b.n_bytes for b in context.buffers if b.purpose == "compute")
    context.close()
    caches = re.findall(r"size = +([0-9.]+) MiB \( *\d+ cells", whole_log())
    total = sum(round(float(n) * MIB) for n in caches)
    assert all_cache_bytes(facts, shape) == pytest.approx(total, abs=0.02 * MIB)
    assert compute <= compute_bytes(facts, shape) <= 1.05 * compute  # also of rotated heads


@pytest.mark.parametrize("adapted", [(), ATTENTION, EXPERTS, OTHERS], ids=len)
def test_nano_really_allocates_it(
    bare_gguf: Path, tmp_path: Path, adapted: tuple[str, ...]
) -> None:
    factors = random_factors(bare_gguf, adapted)
    adapter = write_lora(tmp_path / "lora.gguf", factors) if adapted else None
    facts = read_facts(bare_gguf, adapter)
    if adapter:
        assert facts.weight_bytes > read_facts(bare_gguf).weight_bytes
    model = Model(bare_gguf, ModelParams(load_mode="none"), adapter=adapter)
    shape = Shape(n_ctx=32_768, n_batch=512, n_seq=4, n_outputs=19)
    context = make_context(model, shape)
    actual = sum(buffer.n_bytes for buffer in model.buffers + context.buffers)
    predicted = facts.weight_bytes + all_cache_bytes(facts, shape)
    predicted += compute_bytes(facts, shape) + head_bytes(facts, shape)
    model.close()
    # The rows of logits beyond n_seq + 1 come with the first draft; the rest is the envelope,
    # which is wide for a model as small as this.
    assert actual <= predicted <= actual + 15 * facts.n_vocab * 4 + 10 * MIB
