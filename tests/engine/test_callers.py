"""Waiting requests are served by callers in turn; those of one caller in the order they come."""

import itertools
import random
from collections import Counter, deque

import pytest

from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import Finished, Generate
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.sequence import Callers, QueueTurn
from gptoss_local.types import ContextParams, SamplingParams


class Queue:
    """An engine with two slots, whose requests come and end one after the other."""

    def __init__(self, model: Model) -> None:
        params = ContextParams(
            n_ctx=2048, n_batch=64, n_seq_max=2, n_threads_prefill=1, n_threads_decode=1
        )
        self.engine = Engine(Context(model, params))
        self._ids = itertools.count()
        self._callers: dict[int, str] = {}

    def ask(self, caller: str, n_tokens: int = 60, priority: int = 0) -> int:
        seq_id = next(self._ids)
        self._callers[seq_id] = caller
        request = Generate(
            seq_id=seq_id,
            prompt=[10 + seq_id % 90, 11, 12, 13],
            sampling=SamplingParams(temperature=1, seed=seq_id),
            stop_tokens=[],
            max_tokens=n_tokens,
            priority=priority,
            caller=caller,
        )
        assert self.engine.add_request(request) == []
        return seq_id

    def ended(self) -> list[int]:
        """Step once; return the requests that are over."""
        events = self.engine.step()
        assert self.engine.check() == []
        return [event.seq_id for event in events if isinstance(event, Finished)]

    def all_ended(self) -> list[str]:
        """Return the callers of all requests, in the order in which these end."""
        order = []
        while self.engine.has_work:
            order += [self._callers[seq_id] for seq_id in self.ended()]
        return order


def test_a_crowd_of_one_caller_does_not_hold_up_another(smooth_model: Model) -> None:
    queue = Queue(smooth_model)
    for _ in range(40):
        queue.ask("greedy")
    for _ in range(5):
        queue.ended()
    for _ in range(3):
        queue.ask("polite")
    order = queue.all_ended()
    assert [n for n, caller in enumerate(order) if caller == "polite"][-1] < 10


def test_who_asks_for_little_waits_for_little(smooth_model: Model) -> None:
    """Clients that ask again as soon as they are answered: one of them wants a tenth as much."""
    queue = Queue(smooth_model)
    greedy = {queue.ask(f"greedy {n}", 60): n for n in range(16)}
    polite, waits, n_since = queue.ask("polite", 6), list[int](), 0
    while len(waits) < 20:
        for seq_id in queue.ended():
            if seq_id == polite:
                waits.append(n_since)
                polite, n_since = queue.ask("polite", 6), 0
            else:
                number, n_since = greedy.pop(seq_id), n_since + 1
                greedy[queue.ask(f"greedy {number}", 60)] = number
    assert sorted(waits)[len(waits) // 2] <= 4, f"first come, first served: 16; {waits}"


def test_equal_callers_get_equally_much(smooth_model: Model) -> None:
    """However many requests each of them has waiting."""
    queue, n_done, callers = Queue(smooth_model), Counter[str](), dict[int, str]()
    for caller, n_waiting in (("a", 20), ("b", 5), ("c", 2)):
        callers |= {queue.ask(caller): caller for _ in range(n_waiting)}
    while n_done.total() < 90:
        for seq_id in queue.ended():
            n_done[callers[seq_id]] += 1
            callers[queue.ask(callers[seq_id])] = callers[seq_id]
    assert max(n_done.values()) - min(n_done.values()) <= 4, n_done


def test_priority_comes_before_turns(smooth_model: Model) -> None:
    queue = Queue(smooth_model)
    for _ in range(10):
        queue.ask("first", priority=1)
    queue.ask("second")
    assert queue.all_ended() == ["first"] * 10 + ["second"]


@pytest.mark.parametrize("seed", range(20))
def test_one_caller_is_served_in_the_order_it_asks(seed: int) -> None:
    """Whatever others ask, and whatever its requests cost, in whichever order they end."""
    rng, callers = random.Random(seed), Callers()
    waiting, running = list[tuple[float, int, QueueTurn]](), deque[QueueTurn]()
    last = dict.fromkeys("abc", -1)
    for n in range(2000):
        if rng.random() < 0.5:
            turn = callers.turn(rng.choice("aaabbc"))
            waiting.append((turn.end, n, turn))
        elif waiting and len(running) < 8:
            _, number, turn = waiting.pop(waiting.index(min(waiting)))
            assert last[turn.caller] < number
            last[turn.caller] = number
            callers.serve(turn)
            running.append(turn)
        elif running:
            running.rotate(rng.randrange(8))
            callers.end(running.pop(), rng.choice([0, 1, 30, 64, 500, 50_000]))


def test_nobody_waits_for_ever() -> None:
    """Beside others of whom nothing is known, and who never come again: connections of `curl`."""
    callers = Callers()
    for _ in range(20):
        heavy = callers.turn("heavy")
        callers.serve(heavy)
        callers.end(heavy, 500)
    heavy, n_before = callers.turn("heavy"), 0
    others = deque(callers.turn(f"new {n}") for n in range(8))
    while (other := others.popleft()).end < heavy.end:
        callers.serve(other)
        callers.end(other, 60)
        n_before += 1
        others.append(callers.turn(f"newer {n_before}"))
    assert n_before < 100
