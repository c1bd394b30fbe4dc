"""The wrapper over llama.cpp: batches, sequences, state, limits, and use after close."""

from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
import numpy.typing as npt
import pytest

from gptoss_local.base.errors import ContextOverflowError, EngineError, ModelLoadError
from gptoss_local.base.types import ContextParams, ModelParams, SamplingParams
from gptoss_local.engine.llama import (
    Batch,
    Context,
    Model,
    Sampler,
    list_devices,
)
from tests.engine.smooth_model import write_smooth_model

A, B = [976, 4251, 382, 261, 2201], [12845, 591, 220, 16, 316, 220, 455]
N_CTX = 2048


@pytest.fixture(scope="module")
def model(nano_gguf: Path) -> Iterator[Model]:
    model = Model(nano_gguf)
    yield model
    model.close()


def make_context(model: Model, n_ctx: int = N_CTX, n_seq_max: int = 3, **more: int) -> Context:
    params = ContextParams(
        n_ctx=n_ctx, n_threads_prefill=1, n_threads_decode=1, n_seq_max=n_seq_max, **more
    )
    return Context(model, params)


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = make_context(model)
    yield context
    context.close()


def logits(context: Context, row: int = -1) -> npt.NDArray[np.float32]:
    pointer = llama_cpp.llama_get_logits_ith(context.handle, row)
    return np.ctypeslib.as_array(pointer, (201_088,)).copy()


def test_keys_that_are_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    """As the planner does before anything is read (tests/plan/test_cache_type.py)."""
    write_smooth_model(tmp_path / "odd.gguf", head_dim=48)
    odd = Model(tmp_path / "odd.gguf")
    sizes = ContextParams(n_ctx=256, n_threads_prefill=1, n_threads_decode=1, cache_type="q8_0")
    with pytest.raises(ModelLoadError, match="does not divide n_embd_head_k=48"):
        Context(odd, sizes)
    odd.close()


def test_a_shared_batch_changes_no_sequence(model: Model, context: Context) -> None:
    batch = Batch(64)
    rows = [batch.extend(tokens, 0, seq_id, n_outputs=1) for seq_id, tokens in ((2, A), (0, B))]
    context.decode_batch(batch)
    together = [logits(context, row) for row in rows]
    batch.clear()
    rows = [batch.add(11, len(A), 2), batch.add(11, len(B), 0)]
    context.decode_batch(batch)
    together += [logits(context, row) for row in rows]
    alone = make_context(model)
    for seq_id, tokens in enumerate((A, B)):
        alone.decode(tokens, position=0, seq_id=seq_id)
        np.testing.assert_allclose(together[seq_id], logits(alone), atol=0.1)
        alone.decode([11], position=len(tokens), seq_id=seq_id)
        np.testing.assert_allclose(together[seq_id + 2], logits(alone), atol=0.1)
    alone.close()
    assert np.abs(together[0] - together[1]).max() > 1  # the tolerance tells them apart


def test_remove_copy_and_positions(context: Context) -> None:
    assert context.positions(0) == (-1, -1)
    context.decode(A, position=0, seq_id=0)
    context.copy(0, 1)
    context.remove(0, start=3)
    assert (context.positions(0), context.positions(1)) == ((0, 2), (0, len(A) - 1))
    context.remove(1)
    assert context.positions(1) == (-1, -1)


def test_positions_tell_the_window(context: Context) -> None:
    """Sliding layers forget distant positions, and keep those that the next token sees."""
    assert context.n_swa == 128
    for n in range(0, N_CTX, 128):
        context.decode([11] * 128, position=n)
        first, last = context.positions(0)
        assert last == n + 127
        assert first <= max(0, last + 1 - context.n_swa)
    assert first > 0


@pytest.mark.parametrize("partial", [False, True])
def test_restored_state_goes_on_with_the_same_logits(context: Context, partial: bool) -> None:
    """Other cells are another order of sums, in which nano may take another expert for a token."""
    errors = []
    for step in (37, 41, 53, 101):
        tokens = [(i * step) % 1000 + 100 for i in range(400)]
        context.decode(tokens[:300], position=0)
        state = context.save(0, partial=partial)
        context.decode(tokens[300:], position=300)
        wanted = logits(context)
        context.remove(0, start=300 if partial else 0)
        context.restore(0, state, partial=partial)
        assert context.positions(0)[1] == 299
        context.decode(tokens[300:], position=300)
        errors.append(np.abs(logits(context) - wanted).max())
        context.remove(0)
    assert min(errors) < 1e-3
    assert max(errors) < 2


def test_window_ends_where_the_next_token_sees_no_more(context: Context) -> None:
    """One position less makes another result, and `can_resume` says so."""
    tokens = [(i * 37) % 1000 + 100 for i in range(310)]
    context.decode(tokens[:300], position=0)
    saved = context.save(0, partial=True)
    context.decode(tokens[300:], position=300)
    wanted = logits(context)
    for n_more, is_right in ((1, True), (2, False)):
        context.remove(0, start=300)
        context.restore(0, saved, partial=True)
        context.decode(tokens[300 : 300 + n_more], position=300)
        context.restore(0, context.save(0, partial=True), partial=True)  # only what it masks
        assert not context.can_resume(0, 299)
        assert context.can_resume(0, 300) == is_right
        context.remove(0, start=300)
        context.decode(tokens[300:], position=300)
        assert np.array_equal(logits(context), wanted) == is_right


def test_saved_as_of_an_earlier_position(context: Context) -> None:
    tokens = [(i * 37) % 1000 + 100 for i in range(400)]
    context.decode(tokens[:350], position=0)
    context.decode(tokens[350:], position=350)
    wanted = logits(context)
    earlier = context.save(0, partial=True, end=350)
    assert context.positions(0)[1] == 399
    context.remove(0, start=350)
    context.restore(0, earlier, partial=True)
    context.decode(tokens[350:], position=350)
    np.testing.assert_array_equal(logits(context), wanted)
    for end in (0, 401):
        with pytest.raises(EngineError, match="as of position"):
            context.save(0, partial=True, end=end)


def test_damaged_state_is_refused(context: Context) -> None:
    context.decode(A, position=0)
    state = context.save(0)
    with pytest.raises(EngineError, match="restore"):
        context.restore(0, state[: len(state) // 2])
    assert context.positions(0) == (-1, -1)
    with pytest.raises(EngineError, match="nothing to save"):
        context.save(0)


def test_full_cache_changes_nothing(model: Model) -> None:
    context = make_context(model, n_ctx=256, n_seq_max=2)
    context.decode([11] * 200, position=0, seq_id=0)
    with pytest.raises(ContextOverflowError, match="256"):
        context.decode([11] * 57, position=0, seq_id=1)
    assert context.positions(1) == (-1, -1)
    context.decode([11] * 56, position=0, seq_id=1)
    context.close()


def test_fatal_batches_raise_instead(context: Context) -> None:
    with pytest.raises(EngineError, match="batch"):
        context.decode([11] * (context.n_batch + 1), position=0)
    batch = Batch(64)
    batch.extend(A, 0, 0, n_outputs=4)
    with pytest.raises(EngineError, match="4 outputs"):
        context.decode_batch(batch)


@pytest.mark.parametrize("seq_id", [-1, 3, 5000])
def test_unknown_sequences_raise(context: Context, seq_id: int) -> None:
    state = (context.decode(A, position=0), context.save(0))[1]
    for use in (
        lambda: context.remove(seq_id),
        lambda: context.copy(0, seq_id),
        lambda: context.copy(seq_id, 0),
        lambda: context.positions(seq_id),
        lambda: context.save(seq_id),
        lambda: context.restore(seq_id, state),
    ):
        with pytest.raises(EngineError, match=f"sequence {seq_id} "):
            use()  # type: ignore[no-untyped-call]


def test_a_gap_in_the_positions_raises(context: Context) -> None:
    context.decode(A, position=0)
    with pytest.raises(EngineError, match="status -1"):
        context.decode(B, position=50)
    context.decode(B, position=len(A))


def test_nothing_works_after_close(nano_gguf: Path) -> None:
    """Closing the model closes its contexts and samplers first."""
    model = Model(nano_gguf)
    context, sampler = make_context(model), Sampler(SamplingParams(seed=1))
    assert sampler.bind(context, 0)
    context.decode(A, position=0)
    model.close()
    model.close()
    for use in (
        lambda: context.decode(A, position=0),
        lambda: context.remove(0),
        lambda: context.copy(0, 1),
        lambda: context.positions(0),
        lambda: context.save(0),
        lambda: context.handle,
        lambda: model.n_vocab,
        lambda: sampler.sample(context),
        lambda: sampler.unbind(),
    ):
        with pytest.raises(EngineError, match="closed"):
            use()  # type: ignore[no-untyped-call]
    sampler.close()
    with pytest.raises(EngineError, match="closed"):
        sampler.sample(context)


def test_memory_figures(model: Model, context: Context) -> None:
    """Keys and values of a cell: 2 x 4 layers x 128 numbers of 2 bytes."""
    assert sum(b.n_bytes for b in model.buffers) == pytest.approx(model.size_bytes, rel=0.05)
    purposes = [b.purpose for b in context.buffers]
    assert sorted(purposes) == ["compute", "kv", "kv", "output"]
    small = sum(b.n_bytes for b in context.buffers if b.purpose == "kv")
    larger = make_context(model, n_ctx=2 * N_CTX)
    large = sum(b.n_bytes for b in larger.buffers if b.purpose == "kv")
    larger.close()
    assert large - small == pytest.approx(N_CTX * 2048, rel=0.01)


def test_devices_and_load_parameters(nano_gguf: Path) -> None:
    cpu = next(d for d in list_devices() if d.kind == "cpu")
    assert 0 < cpu.free_bytes <= cpu.total_bytes
    with pytest.raises(ModelLoadError, match="no device CUDA99"):
        Model(nano_gguf, ModelParams(devices=("CUDA99",)))
    params = ModelParams(
        tensor_overrides=((r"^blk\.[0-3]\.ffn_(up|down|gate)_exps", "CPU"),), load_mode="none"
    )
    model = Model(nano_gguf, params)
    assert {b.place for b in model.buffers}.isdisjoint({"CPU_Mapped"})
    model.close()
