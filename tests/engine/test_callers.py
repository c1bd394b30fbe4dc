"""Waiting requests are served by callers in turn, and requests of one caller in order.

A caller is named by its key, and one of its connections: "key" or "key connection".
"""

import itertools
import random
from collections import Counter, deque

import pytest

from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import Finished, Generate
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.sequence import Callers


def path_of(caller: str) -> tuple[str, str]:
    key, _, connection = caller.partition(" ")
    return key, connection


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
            caller=path_of(caller),
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


def test_small_requests_wait_little(smooth_model: Model) -> None:
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


def test_a_key_with_many_connections_gets_no_more_than_one_with_few(smooth_model: Model) -> None:
    queue = Queue(smooth_model)
    callers = {queue.ask(f"many {n}"): f"many {n}" for n in range(24)}
    callers[queue.ask("one 0")] = "one 0"
    callers[queue.ask("one 1")] = "one 1"
    n_done = Counter[str]()
    while n_done.total() < 80:
        for seq_id in queue.ended():
            n_done[path_of(callers[seq_id])[0]] += 1
            callers[queue.ask(callers[seq_id])] = callers[seq_id]
    assert abs(n_done["many"] - n_done["one"]) <= 4, n_done


def test_a_new_connection_for_each_request_gains_nothing(smooth_model: Model) -> None:
    """Three with one each, beside one that has as many open, and each over a new connection."""
    queue, new = Queue(smooth_model), (f"key new {n}" for n in itertools.count())
    callers = {queue.ask(f"key {n}"): f"key {n}" for n in range(3)}
    callers |= {queue.ask(caller): caller for caller in itertools.islice(new, 3)}
    n_done = Counter[bool]()
    while n_done.total() < 60:
        for seq_id in queue.ended():
            is_new = "new" in callers[seq_id]
            n_done[is_new] += 1
            caller = next(new) if is_new else callers[seq_id]
            callers[queue.ask(caller)] = caller
    assert abs(n_done[True] - n_done[False]) <= 4, n_done


@pytest.mark.parametrize("seed", range(20))
def test_one_caller_is_served_in_the_order_it_asks(seed: int) -> None:
    """No matter what others ask, what its requests cost, and in which order they end."""
    rng, callers = random.Random(seed), Callers()
    waiting, running = list[tuple[int, str]](), deque[str]()
    last = dict.fromkeys("abc", -1)
    for n in range(2000):
        if rng.random() < 0.5:
            name = rng.choice("aaabbc")
            callers.ask((name,))
            waiting.append((n, name))
        elif waiting and len(running) < 8:
            number, name = min(waiting, key=lambda each: (*callers.rank((each[1],)), each[0]))
            waiting.remove((number, name))
            assert last[name] < number
            last[name] = number
            callers.serve((name,))
            running.append(name)
        elif running:
            running.rotate(rng.randrange(8))
            callers.end((running.pop(),), rng.choice([0, 1, 30, 64, 500, 50_000]))


def test_nobody_waits_for_ever() -> None:
    """Beside unknown callers that never come again, such as connections of `curl`."""
    callers, heavy, n_before = Callers(), ("heavy",), 0
    for _ in range(20):
        callers.ask(heavy)
        callers.serve(heavy)
        callers.end(heavy, 500)
    callers.ask(heavy)
    others = deque((f"new {n}",) for n in range(8))
    for other in others:
        callers.ask(other)
    while callers.rank(other := others.popleft()) < callers.rank(heavy):
        callers.serve(other)
        callers.end(other, 60)
        n_before += 1
        others.append((f"newer {n_before}",))
        callers.ask(others[-1])
    assert n_before <= 8, "one of each"
