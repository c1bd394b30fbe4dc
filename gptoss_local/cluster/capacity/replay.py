"""Replay requests through one or more simulated engines, event by event."""

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from gptoss_local.cluster.capacity.simulated_engine import Served, SimulatedEngine

_ARRIVAL, _END, _BEGIN = range(3)  # in the order of what happens at the same time

Route = Callable[[Sequence[SimulatedEngine], "array[int]"], SimulatedEngine]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that arrives, and how long the answer to it is.

    Attributes:
        at_s: When it arrives; with `follows`, how long after the end of that request.
        prompt: Its tokens in runs: an id, and how often it comes in a row.
        follows: Index of the request whose end it waits for.
    """

    at_s: float
    prompt: tuple[tuple[int, int], ...]
    n_answer: int
    follows: int | None = None

    @property
    def tokens(self) -> "array[int]":
        tokens = array("i")
        for token, n in self.prompt:
            tokens.extend(array("i", [token]) * n)
        return tokens


def least_outstanding(engines: Sequence[SimulatedEngine], prompt: "array[int]") -> SimulatedEngine:
    return min(engines, key=lambda engine: engine.n_outstanding)


def prefix_aware(engines: Sequence[SimulatedEngine], prompt: "array[int]") -> SimulatedEngine:
    """Return the engine with the least to prefill and to hold, this prompt included.

    Source: the default cost of Dynamo's KV router 1.6: prompts that have no first token, but for
    what was cached of them, plus the active blocks of prompts, shared ones once.
    """

    def cost(engine: SimulatedEngine) -> int:
        n_new = len(prompt) - engine.n_cached(prompt)
        return engine.n_tokens_unread + n_new + engine.n_tokens_held(prompt)

    return min(engines, key=cost)


def replay(
    requests: Sequence[Arrival],
    engines: Sequence[SimulatedEngine],
    route: Route = least_outstanding,
) -> list[Served]:
    """Return the outcome of each request; `route` chooses its engine when it arrives."""
    served = [Served(number, 0.0) for number in range(len(requests))]
    followers: defaultdict[int, list[int]] = defaultdict(list)
    # (when, what, which): what comes at the same time as a step ends is in the next one
    events: list[tuple[float, int, int]] = []
    for number, request in enumerate(requests):
        if request.follows is None:
            events.append((request.at_s, _ARRIVAL, number))
        else:
            followers[request.follows].append(number)
    heapq.heapify(events)
    numbers = {engine: number for number, engine in enumerate(engines)}
    while events:
        now_s, event, number = heapq.heappop(events)
        if event == _ARRIVAL:
            request, tokens = requests[number], requests[number].tokens
            engine = route(engines, tokens)
            served[number].arrived_s = now_s
            engine.add(served[number], tokens, request.n_answer)
            if not engine.is_busy:
                heapq.heappush(events, (now_s, _BEGIN, numbers[engine]))
        elif event == _END:
            for done in engines[number].end_step(now_s):
                for follower in followers[done.number]:
                    heapq.heappush(events, (now_s + requests[follower].at_s, _ARRIVAL, follower))
            heapq.heappush(events, (now_s, _BEGIN, number))
        elif not engines[number].is_busy and (step_s := engines[number].begin_step()) is not None:
            heapq.heappush(events, (now_s + step_s, _END, number))
    return served
