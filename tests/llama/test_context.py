"""The wrapper over llama.cpp: batches, sequences, state, limits, and use after close."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from gptoss_local.base.errors import ContextOverflowError, EngineError, ModelLoadError
from gptoss_local.base.types import ModelParams, SamplingParams
from gptoss_local.engine.llama import (
    Batch,
    Context,
    Model,
    Sampler,
)
from gptoss_local.engine.llama.library import _SET_NEXTN, _function, skip_unread_rows
from tests.engine.run import make_context
from tests.engine.smooth_model import write_smooth_model

A, B = [976, 4251, 382, 261, 2201], [12845, 591, 220, 16, 316, 220, 455]
N_CTX = 2048


@pytest.fixture(scope="module")
def model(bare_gguf: Path) -> Iterator[Model]:
    model = Model(bare_gguf)
    yield model
    model.close()


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = make_context(model, n_ctx=N_CTX, n_seq_max=3)
    yield context
    context.close()


def test_keys_that_are_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    """As the planner does before anything is read (tests/plan/test_cache_type.py)."""
    write_smooth_model(tmp_path / "odd.gguf", head_dim=48)
    odd = Model(tmp_path / "odd.gguf")
    with pytest.raises(ModelLoadError, match="does not divide n_embd_head_k=48"):
        make_context(odd, n_ctx=256, cache_type="q8_0")
    odd.close()


def has_function(name: str) -> bool:
    with suppress(ModelLoadError):
        return bool(_function(name))
    return False


@pytest.mark.parametrize("n_outputs", [0, 1, 3])
def test_rows_without_outputs_change_no_logits(
    model: Model, monkeypatch: pytest.MonkeyPatch, n_outputs: int
) -> None:
    """The last layer's experts skip them, in a prompt that is read in two parts."""
    assert any(map(has_function, _SET_NEXTN)), "it would be skipped without a word"
    found = []
    for skips in (skip_unread_rows, lambda handle: None):
        monkeypatch.setattr("gptoss_local.engine.llama.context.skip_unread_rows", skips)
        context = make_context(model, n_ctx=N_CTX, n_seq_max=3, n_outputs_max=4)
        for seq_id, tokens in enumerate((A, B)):
            batch = Batch(len(tokens))
            batch.extend(tokens, 0, seq_id, n_outputs=n_outputs)
            context.decode_batch(batch)
        batch = Batch(2)
        for seq_id, tokens in enumerate((A, B)):
            batch.add(tokens[0], len(tokens), seq_id)
        context.decode_batch(batch)
        found.append([context.logits(row).copy() for row in range(2)])
        context.close()
    assert np.array_equal(*found)


def test_window_ends_where_the_next_token_sees_no_more(context: Context) -> None:
    """One position less makes another result, and `can_resume` says so."""
    tokens = [(i * 37) % 1000 + 100 for i in range(310)]
    context.decode(tokens[:300], position=0)
    saved = context.save(0, partial=True)
    context.decode(tokens[300:], position=300)
    wanted = context.logits(-1).copy()
    for n_more, is_right in ((1, True), (2, False)):
        context.remove(0, start=300)
        context.restore(0, saved, partial=True)
        context.decode(tokens[300 : 300 + n_more], position=300)
        context.restore(0, context.save(0, partial=True), partial=True)  # only the masked tokens
        assert not context.can_resume(0, 299)
        assert context.can_resume(0, 300) == is_right
        context.remove(0, start=300)
        context.decode(tokens[300:], position=300)
        assert np.array_equal(context.logits(-1).copy(), wanted) == is_right


def test_saved_as_of_an_earlier_position(context: Context) -> None:
    tokens = [(i * 37) % 1000 + 100 for i in range(400)]
    context.decode(tokens[:350], position=0)
    context.decode(tokens[350:], position=350)
    wanted = context.logits(-1).copy()
    earlier = context.save(0, partial=True, end=350)
    assert context.positions(0)[1] == 399
    context.remove(0, start=350)
    context.restore(0, earlier, partial=True)
    context.decode(tokens[350:], position=350)
    np.testing.assert_array_equal(context.logits(-1).copy(), wanted)
    for end in (0, 401):
        with pytest.raises(EngineError, match="as of position"):
            context.save(0, partial=True, end=end)


def test_what_llama_cpp_would_abort_at_is_an_error(model: Model, context: Context) -> None:
    context.decode(A, position=0)
    state, batch = context.save(0), Batch(64)
    batch.extend(A, 0, 0, n_outputs=4)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: context.decode([11] * (context.n_batch + 1), position=0), "batch"),
        (lambda: context.decode_batch(batch), "4 outputs"),
        (lambda: context.decode(B, position=50), "status -1"),  # a gap
    ]
    for n in (-1, 3, 5000):
        wrong += [
            (lambda n=n: context.remove(n), f"sequence {n} "),
            (lambda n=n: context.copy(0, n), f"sequence {n} "),
            (lambda n=n: context.copy(n, 0), f"sequence {n} "),
            (lambda n=n: context.positions(n), f"sequence {n} "),
            (lambda n=n: context.save(n), f"sequence {n} "),
            (lambda n=n: context.restore(n, state), f"sequence {n} "),
        ]
    for use, match in wrong:
        with pytest.raises(EngineError, match=match):
            use()
    context.decode(B, position=len(A))
    with pytest.raises(EngineError, match="restore"):
        context.restore(0, state[: len(state) // 2])
    assert context.positions(0) == (-1, -1)
    with pytest.raises(EngineError, match="nothing to save"):
        context.save(0)
    small = make_context(model, n_ctx=256, n_seq_max=2)
    small.decode([11] * 200, position=0)
    with pytest.raises(ContextOverflowError, match="256"):
        small.decode([11] * 57, position=0, seq_id=1)
    assert small.positions(1) == (-1, -1)
    small.decode([11] * 56, position=0, seq_id=1)


def test_nothing_works_after_close(bare_gguf: Path) -> None:
    """Closing the model closes its contexts and samplers first."""
    model = Model(bare_gguf)
    context, sampler = (
        make_context(model, n_ctx=N_CTX, n_seq_max=3),
        Sampler(SamplingParams(seed=1)),
    )
    assert sampler.bind(context, 0)
    context.decode(A, position=0)
    model.close()
    model.close()
    uses: tuple[Callable[[], object], ...] = (
        lambda: context.decode(A, position=0),
        lambda: context.remove(0),
        lambda: context.copy(0, 1),
        lambda: context.positions(0),
        lambda: context.save(0),
        lambda: context.handle,
        lambda: model.handle,
        lambda: sampler.sample(context),
        lambda: sampler.unbind(),
    )
    for use in uses:
        with pytest.raises(EngineError, match="closed"):
            use()
    sampler.close()
    with pytest.raises(EngineError, match="closed"):
        sampler.sample(context)


def test_memory_figures(model: Model, context: Context) -> None:
    """Keys and values of a cell: 2 x 4 layers x 128 numbers of 2 bytes."""
    assert sum(b.n_bytes for b in model.buffers) == pytest.approx(model.size_bytes, rel=0.05)
    purposes = [b.purpose for b in context.buffers]
    assert sorted(purposes) == ["compute", "kv", "kv", "output"]
    small = sum(b.n_bytes for b in context.buffers if b.purpose == "kv")
    larger = make_context(model, n_ctx=2 * N_CTX, n_seq_max=3)
    large = sum(b.n_bytes for b in larger.buffers if b.purpose == "kv")
    larger.close()
    assert large - small == pytest.approx(N_CTX * 2048, rel=0.01)


def test_devices_and_load_parameters(bare_gguf: Path) -> None:
    with pytest.raises(ModelLoadError, match="no device CUDA99"):
        Model(bare_gguf, ModelParams(devices=("CUDA99",)))
    params = ModelParams(
        tensor_overrides=((r"^blk\.[0-3]\.ffn_(up|down|gate)_exps", "CPU"),), load_mode="none"
    )
    model = Model(bare_gguf, params)
    assert {b.place for b in model.buffers}.isdisjoint({"CPU_Mapped"})
    model.close()
