"""Replay requests through one or more simulated engines, event by event."""

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from gptoss_local.capacity.simulated_engine import Served, SimulatedEngine

Route = Callable[[Sequence[SimulatedEngine], "array[int]"], SimulatedEngine]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that arrives, and how long the answer to it is.

    Attributes:
        at_s: When it arrives; with `follows`, how long after the end of that request.
        prompt: Its tokens in runs: an id, and how often it comes in a row.
        n_answer: Tokens of the answer.
        follows: Index of the request whose end it waits for.
    """

    at_s: float
    prompt: tuple[tuple[int, int], ...]
    n_answer: int
    follows: int | None = None

    @property
    def tokens(self) -> "array[int]":
        """Return the ids of the prompt, one by one."""
        tokens = array("i")
        for token, n in self.prompt:
            tokens.extend(array("i", [token]) * n)
        return tokens


def least_outstanding(engines: Sequence[SimulatedEngine], prompt: "array[int]") -> SimulatedEngine:
    """Return the engine with the fewest requests that run or wait."""
    return min(engines, key=lambda engine: engine.n_outstanding)


def prefix_aware(engines: Sequence[SimulatedEngine], prompt: "array[int]") -> SimulatedEngine:
    """Return the engine with the least to prefill and to hold, this prompt included.

    Source: the default cost of Dynamo's KV router: new blocks plus active ones.
    """
    return min(engines, key=lambda engine: engine.n_tokens_held - engine.n_cached(prompt))


def replay(
    requests: Sequence[Request],
    engines: Sequence[SimulatedEngine],
    route: Route = least_outstanding,
) -> list[Served]:
    """Return what became of each request, in their order.

    Args:
        requests: In any order of their times.
        engines: Fresh ones.
        route: Chooses the engine of a request when it arrives.
    """
    served = [Served(number, 0.0) for number in range(len(requests))]
    followers: defaultdict[int, list[int]] = defaultdict(list)
    # (when, which request or, after all of them, which engine)
    events: list[tuple[float, int]] = []
    for number, request in enumerate(requests):
        if request.follows is None:
            events.append((request.at_s, number))
        else:
            followers[request.follows].append(number)
    heapq.heapify(events)
    while events:
        now_s, number = heapq.heappop(events)
        if number < len(requests):
            request, tokens = requests[number], requests[number].tokens
            engine = route(engines, tokens)
            served[number].arrived_s = now_s
            engine.add(served[number], tokens, request.n_answer)
            if engine.is_busy:
                continue
        else:
            engine = engines[number - len(requests)]
            for done in engine.end_step(now_s):
                for follower in followers[done.number]:
                    heapq.heappush(events, (now_s + requests[follower].at_s, follower))
        if (step_s := engine.begin_step()) is not None:
            heapq.heappush(events, (now_s + step_s, len(requests) + engines.index(engine)))
    return served
