"""Reuse of prefixes, and the order of eviction."""

from collections.abc import Callable

import pytest

from tests.engine.prefix_run import END, Run, in_memory, text
from tests.engine.smooth_model import TOLERANCE

Start = Callable[..., Run]


def messages(seed: int, n: int) -> list[int]:
    """`n` messages of 100 tokens."""
    return [token for i in range(n) for token in (*text(seed + i, 99), END)]


def test_a_conversation_goes_on_where_it_was(start: Start) -> None:
    """From the last message, from an earlier one, from a prefetched history; branches stay."""
    run = start(n_ctx=2048)
    whole = run.answer(messages(0, 9))
    edited = run.answer(messages(0, 4) + text(50, 100))
    assert edited.n_cached == 400  # a long way back, where the window is long gone
    assert run.answer([*whole.prompt, *text(51, 10)]).n_cached == 900  # without its analysis
    assert run.answer([*edited.prompt, *text(52, 10)]).n_cached == 500
    history = whole.prompt + text(54, 30) + [END]
    run.prefetch(history[:-5])  # a newer one of the same conversation replaces it
    run.prefetch(history)
    run.finish()
    assert run.engine.stats().n_prefetched == 31
    assert run.answer([*history, *text(53, 20)]).n_cached == len(history)
    assert max(run.errors()) <= TOLERANCE
    forgets = start(n_ctx=2048, prefixes=in_memory(0))
    forgets.answer(messages(0, 10))
    assert forgets.answer(messages(0, 4) + text(50, 100)).n_cached == 0
    assert forgets.engine.stats().n_checkpoints == 0


def test_a_token_does_not_wait_for_a_window_to_be_saved(start: Start) -> None:
    """The first one goes out, then the end of the prompt is saved; an only one is the last, too."""
    run = start()
    asked = run.ask([*text(1, 8), END, *text(2, 50), END], n_answer=3)
    for n_tokens, n_saved in ((1, 0), (2, 1)):
        run.step()
        assert (len(asked.answer), run.engine.stats().n_checkpoints) == (n_tokens, n_saved)
    run.finish()
    run.answer([*text(3, 50), END], n_answer=1)
    assert run.engine.stats().n_checkpoints == 2


def test_a_prefetch_makes_nobody_wait_and_evicts_nobody(start: Start) -> None:
    run = start(n_ctx=2048)
    run.prefetch(text(1, 1500))
    run.step()
    n_prefetched = run.engine.stats().n_prefetched
    assert 0 < n_prefetched <= 64
    run.ask(text(2, 10), n_answer=2)
    run.step()
    assert len(run.asked[0].answer) == 1
    assert run.engine.stats().n_prefetched == n_prefetched
    run.finish()
    assert run.answer([*text(1, 1500), 5]).n_cached == 1500
    run.answer(text(3, 400))
    run.prefetch(text(4, 600), lineage="y")
    run.finish()
    stats = run.engine.stats()
    assert (stats.n_prefetched, stats.n_evicted) == (1500, 0)


def test_running_sequences_share_the_cells_of_a_prefix(start: Start) -> None:
    """Three times 300 tokens in a cache of 512, and nobody waits."""
    run = start(n_ctx=512, n_seq=4)
    common = [*text(1, 299), END]
    run.answer(common)
    for seed in (2, 3, 4):
        run.ask(common + text(seed, 20), n_answer=10)
    run.step()
    stats = run.engine.stats()
    assert stats.n_running == 3
    assert stats.n_cells_used <= 300 + 3 * 20
    run.finish()
    assert [a.n_cached for a in run.asked[1:]] == [300, 300, 300]
    assert max(run.errors()) <= TOLERANCE


@pytest.mark.parametrize("tail", [0, 100])
def test_prompts_wait_for_a_common_beginning(start: Start, tail: int) -> None:
    """Which is prefilled once; others continue at once."""
    run = start(n_ctx=2048, n_seq=4)
    for seed in (50, 51, 52):
        run.ask(messages(0, 6) + text(seed, tail), n_answer=4)
    run.ask(text(60, 100), n_answer=4)
    run.finish()
    n_common = 600 if tail else 599
    assert [a.n_cached for a in run.asked] == [0, n_common, n_common, 0]
    assert run.engine.stats().n_prefilled == 3 * (600 + tail) + 100 - 2 * n_common
    assert max(run.errors()) <= TOLERANCE


def test_others_find_and_await_nothing(start: Start) -> None:
    """Neither a cached prefix, nor one that is computed now, nor one that is prefetched."""
    run = start(n_ctx=2048, n_seq=4)
    run.answer(messages(0, 3), salt=b"one")
    for salt in (b"one", b"two", b""):
        run.ask(messages(0, 5), n_answer=4, salt=salt)
    run.step()
    assert run.engine.stats().n_running == 3
    run.finish()
    run.prefetch(messages(0, 6), salt=b"two")
    run.finish()
    again = [run.answer([*messages(0, 6), 5], salt=salt) for salt in (b"one", b"two", b"")]
    assert [a.n_cached for a in run.asked[:4]] == [0, 300, 0, 0]
    assert [a.n_cached for a in again] == [500, 600, 500]
    assert max(run.errors()) <= TOLERANCE


def test_least_recently_used_goes_first_from_its_end(start: Start) -> None:
    run = start(n_ctx=768, n_seq=4)
    old = run.answer(messages(1, 2) + text(3, 50))
    new = run.answer(text(4, 250))
    run.answer(text(5, 330))  # some 80 tokens too many
    assert 50 <= run.engine.stats().n_evicted <= 160
    assert run.answer([*new.prompt, 5]).n_cached == 250
    assert run.answer([*old.prompt[:200], 5]).n_cached in (100, 200)
    assert max(run.errors()) <= TOLERANCE


def test_checkpoints_keep_to_their_cap(start: Start) -> None:
    """Of two conversations, the older one's go, and messages' ends last."""
    run = start(n_ctx=2048, prefixes=in_memory(8 * 18_000))
    old = run.answer(messages(0, 5))
    run.answer(messages(10, 6))
    stats = run.engine.stats()
    assert 6 <= stats.n_checkpoints <= 9
    assert stats.checkpoint_bytes <= 8 * 18_000
    assert run.answer([*old.prompt[:200], *text(60, 9)]).n_cached < 200
    assert max(run.errors()) <= TOLERANCE
