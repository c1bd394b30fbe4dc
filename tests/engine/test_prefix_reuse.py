"""Reuse of prefixes, and the order of eviction."""

import timeit
from array import array
from collections.abc import Callable

import pytest

from gptoss_local.base.errors import ContextOverflowError
from gptoss_local.engine.worker.cache.slots import common_prefix
from tests.engine.prefix_run import END, Run, in_memory, text
from tests.engine.smooth_model import TOLERANCE


def messages(seed: int, n: int) -> list[int]:
    """`n` messages of 100 tokens."""
    return [token for i in range(n) for token in (*text(seed + i, 99), END)]


def test_next_turn_prefills_only_new_tokens(start: Callable[..., Run]) -> None:
    run = start()
    first = run.answer([*text(1, 100), END], n_answer=20)
    history = first.prompt + first.answer[12:] + [END]  # the analysis was 12 tokens
    second = run.answer([*history, *text(2, 20), END])
    assert second.n_cached == len(first.prompt)
    assert max(run.errors()) <= TOLERANCE


def test_a_token_does_not_wait_for_a_window_to_be_saved(start: Callable[..., Run]) -> None:
    """The first one goes out, then the end of the prompt is saved; an only one is the last, too."""
    run = start()
    asked = run.ask([*text(1, 50), END], n_answer=3)
    run.step()
    assert (len(asked.answer), run.engine.stats().n_checkpoints) == (1, 0)
    run.step()
    assert (len(asked.answer), run.engine.stats().n_checkpoints) == (2, 1)
    run.finish()
    run.answer([*text(2, 50), END], n_answer=1)
    assert run.engine.stats().n_checkpoints == 2


def test_of_short_messages_the_end_of_the_last_alone_is_saved(start: Callable[..., Run]) -> None:
    run = start()
    run.answer([*text(1, 8), END, *text(2, 8), END, *text(3, 8), END], n_answer=2)
    assert run.engine.stats().n_checkpoints == 1


def test_prefetched_history_is_cached_whole(start: Callable[..., Run]) -> None:
    run = start()
    first = run.answer([*text(1, 100), END], n_answer=60)
    history = first.prompt + first.answer[30:] + [END]
    run.prefetch(history)
    run.finish()
    assert run.engine.stats().n_prefetched == 31
    second = run.answer([*history, *text(2, 20), END])
    assert second.n_cached == len(history)
    assert max(run.errors()) <= TOLERANCE


def test_work_that_arrives_does_not_wait_for_a_prefetch(start: Callable[..., Run]) -> None:
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
    assert run.engine.stats().n_prefetched == 1500
    assert run.answer([*text(1, 1500), 5]).n_cached == 1500


def test_newer_prefetch_of_the_same_conversation_replaces_the_older(
    start: Callable[..., Run],
) -> None:
    run = start()
    run.prefetch(text(1, 100))
    run.prefetch(text(2, 50))
    run.finish()
    assert run.engine.stats().n_prefetched == 50


def test_prefetch_evicts_nobody(start: Callable[..., Run]) -> None:
    run = start(n_ctx=256, n_seq=2)
    for seed in (1, 2):
        run.answer(text(seed, 100))
    run.prefetch(text(3, 100))
    run.finish()
    stats = run.engine.stats()
    assert (stats.n_prefetched, stats.n_evicted) == (0, 0)


def test_edit_goes_on_from_the_last_message_before_it(start: Callable[..., Run]) -> None:
    """A long way back, where the window is long gone; and the other branch stays."""
    run = start(n_ctx=2048)
    whole = run.answer(messages(0, 10))
    edited = run.answer(messages(0, 4) + text(50, 100))
    assert edited.n_cached == 400
    assert run.answer([*whole.prompt, *text(51, 10)]).n_cached == 1000
    assert run.answer([*edited.prompt, *text(52, 10)]).n_cached == 500
    assert max(run.errors()) <= TOLERANCE


def test_without_checkpoints_an_edit_far_back_starts_anew(start: Callable[..., Run]) -> None:
    run = start(n_ctx=2048, prefixes=in_memory(0))
    whole = run.answer(text(1, 1000))
    assert run.answer(whole.prompt[:400] + text(2, 10)).n_cached == 0
    assert run.engine.stats().n_checkpoints == 0
    assert max(run.errors()) <= TOLERANCE


def test_running_sequences_share_the_cells_of_a_prefix(start: Callable[..., Run]) -> None:
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


def test_the_same_prompt_at_once_is_prefilled_once(start: Callable[..., Run]) -> None:
    run = start(n_ctx=2048, n_seq=4)
    for _ in range(3):
        run.ask(messages(0, 10), n_answer=10)
    run.finish()
    assert run.asked[0].answer == run.asked[1].answer == run.asked[2].answer
    assert [a.n_cached for a in run.asked] == [0, 999, 999]
    assert run.engine.stats().n_prefilled == 1000 + 1 + 1
    assert max(run.errors()) <= TOLERANCE


def test_others_find_and_await_nothing(start: Callable[..., Run]) -> None:
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


def test_prompts_wait_for_a_common_beginning(start: Callable[..., Run]) -> None:
    run = start(n_ctx=2048, n_seq=4)
    for seed in (50, 51, 52):
        run.ask(messages(0, 6) + text(seed, 100), n_answer=4)
    run.ask(text(60, 100), n_answer=4)  # behind them, and as soon as they go on
    run.finish()
    assert [a.n_cached for a in run.asked] == [0, 600, 600, 0]
    assert max(run.errors()) <= TOLERANCE


def test_waiting_prompts_go_on_after_a_cancel(start: Callable[..., Run]) -> None:
    run = start(n_ctx=2048, n_seq=4)
    for _ in range(2):
        run.ask(messages(0, 10), n_answer=4)
    run.step()
    n_done = run.engine.stats().n_prefilled
    assert 0 < n_done < 1000
    run.engine.cancel(0)
    run.finish()
    assert len(run.asked[1].answer) == 4
    assert run.asked[1].n_cached <= n_done
    assert max(run.errors()) <= TOLERANCE


def test_every_cell_can_be_used(start: Callable[..., Run]) -> None:
    """The count of shared cells is llama.cpp's: the cache takes as many tokens as we say."""
    run = start(n_ctx=512, n_seq=3)
    common = [*text(1, 199), END]
    run.answer(common, n_answer=1)
    for seed in (2, 3):
        run.answer(common + text(seed, 50), n_answer=1)
    stats = run.engine.stats()
    assert (stats.n_cells_used, stats.n_cells_cached) == (0, 300)
    n_free = 512 - 300
    run.engine._cache.make_room(n_free)
    assert run.engine.stats().n_evicted == 0
    slot = run.engine._slots.all[0]
    assert len(slot.tokens) >= 200
    for i in range(n_free):  # one by one behind the end of a slot that is live there
        run.context.decode([7], position=len(slot.tokens) + i, seq_id=slot.index)
    with pytest.raises(ContextOverflowError):
        run.context.decode([7], position=len(slot.tokens) + n_free, seq_id=slot.index)


def test_least_recently_used_goes_first_from_its_end(start: Callable[..., Run]) -> None:
    run = start(n_ctx=768, n_seq=4)
    old = run.answer(messages(1, 2) + text(3, 50))
    new = run.answer(text(4, 250))
    run.answer(text(5, 330))  # some 80 tokens too many
    assert 50 <= run.engine.stats().n_evicted <= 160
    assert run.answer([*new.prompt, 5]).n_cached == 250
    assert run.answer([*old.prompt[:200], 5]).n_cached in (100, 200)
    assert max(run.errors()) <= TOLERANCE


def test_checkpoints_keep_to_their_cap(start: Callable[..., Run]) -> None:
    """Of two conversations, the older one's go, and messages' ends last."""
    run = start(n_ctx=2048, prefixes=in_memory(8 * 18_000))
    old = run.answer(messages(0, 5))
    run.answer(messages(10, 6))
    stats = run.engine.stats()
    assert 6 <= stats.n_checkpoints <= 9
    assert stats.checkpoint_bytes <= 8 * 18_000
    assert run.answer([*old.prompt[:200], *text(60, 9)]).n_cached < 200
    assert max(run.errors()) <= TOLERANCE


def test_preempted_sequence_finds_its_tokens_again(start: Callable[..., Run]) -> None:
    run = start(n_ctx=256, n_seq=2)
    run.ask(text(1, 100), n_answer=100)
    run.ask(text(2, 60), n_answer=90)
    n_computed = n_held = 0
    while run.engine.has_work:
        run.step()
        n_computed += run.engine.timing.n_tokens
        if not run.engine.stats().n_preempted:
            n_held = 60 + len(run.asked[1].answer) - 1
    stats = run.engine.stats()
    assert (stats.n_preempted, stats.n_cached_tokens) == (1, 0)
    assert (stats.n_prefilled, stats.n_decoded) == (100 + 60, 100 + 90)
    n_once = 100 + 60 + 99 + 89 + stats.n_drafted - stats.n_accepted
    assert n_once < n_computed < n_once + n_held - 30
    assert max(run.errors()) <= TOLERANCE


@pytest.mark.timing
def test_long_prefixes_are_compared_fast() -> None:
    one = array("i", text(1, 30_000))
    other = one[:-1] + array("i", [5])
    assert common_prefix(one, other) == 29_999
    assert common_prefix(one, one[:10]) == 10
    assert common_prefix(one, array("i")) == 0
    n_s = min(timeit.repeat(lambda: common_prefix(one, other), number=10, repeat=5))
    assert n_s / 10 < 1e-3
