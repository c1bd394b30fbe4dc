"""Waiting requests are served by callers in turn, and requests of one caller in order.

A caller is named by its key, and one of its connections: "key" or "key connection".
"""

import itertools
import random
from collections import Counter, deque

import pytest

from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Model
from gptoss_local.engine.protocol import Finished
from gptoss_local.engine.worker.sequence import Callers
from tests.engine.run import Run, make_context


class Queue:
    """An engine with two slots; requests come and end one after the other."""

    def __init__(self, model: Model) -> None:
        self.run = Run(make_context(model, n_ctx=2048, n_batch=64, n_seq_max=2))
        self.callers: list[str] = []

    def ask(self, caller: str, n_tokens: int = 60) -> int:
        n = len(self.callers)
        self.callers.append(caller)
        key, _, connection = caller.partition(" ")
        sampling = SamplingParams(temperature=1, seed=n)
        prompt = [10 + n % 90, 11, 12, 13]
        who = {"caller": (key, connection)}
        self.run.add(n, prompt, sampling, stop_tokens=[], max_tokens=n_tokens, **who)
        return n

    def ended(self) -> list[int]:
        """Step once; return the requests that are over."""
        return [e.seq_id for e in self.run.step() if isinstance(e, Finished)]


def test_a_crowd_of_one_caller_does_not_hold_up_another(smooth_model: Model) -> None:
    queue, order = Queue(smooth_model), list[str]()
    for _ in range(20):
        queue.ask("greedy")
    for _ in range(5):
        queue.ended()
    for _ in range(3):
        queue.ask("polite")
    while order.count("polite") < 3:
        order += [queue.callers[seq_id] for seq_id in queue.ended()]
    assert len(order) <= 10


def test_small_requests_wait_little(smooth_model: Model) -> None:
    """Clients that ask again as soon as they are answered: one of them wants a tenth as much."""
    queue = Queue(smooth_model)
    for n in range(16):
        queue.ask(f"greedy {n}")
    queue.ask("polite", 6)
    waits, n_since = list[int](), 0
    while len(waits) < 12:
        for seq_id in queue.ended():
            caller = queue.callers[seq_id]
            if caller == "polite":
                waits.append(n_since)
            n_since = 0 if caller == "polite" else n_since + 1
            queue.ask(caller, 6 if caller == "polite" else 60)
    assert sorted(waits)[len(waits) // 2] <= 4, f"first come, first served: 16; {waits}"


@pytest.mark.parametrize(
    ("callers", "renews"),
    [
        ([*(f"many {n}" for n in range(24)), "one 0", "one 1"], ""),
        ([*(f"kept {n}" for n in range(3)), *(f"kept new {n}" for n in range(3))], "kept new"),
    ],
    ids=["a key with many connections", "a new connection for each request"],
)
def test_connections_gain_nothing(smooth_model: Model, callers: list[str], renews: str) -> None:
    queue, numbers, n_done = Queue(smooth_model), itertools.count(100), Counter[bool]()
    for caller in callers:
        queue.ask(caller)
    while n_done.total() < 60:
        for seq_id in queue.ended():
            caller = queue.callers[seq_id]
            n_done[caller.startswith(renews or "many")] += 1
            is_new = renews and caller.startswith(renews)
            queue.ask(f"{renews} {next(numbers)}" if is_new else caller)
    assert abs(n_done[True] - n_done[False]) <= 4, n_done


@pytest.mark.parametrize("seed", range(5))
def test_one_caller_is_served_in_the_order_it_asks(seed: int) -> None:
    """For any requests of others, any costs, and any order of ends."""
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
    """Next to unknown callers that never come again, such as connections of `curl`."""
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
