"""Simulate engines: the scheduler of the real one decides, and no token is computed."""

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import msgspec

from gptoss_local.cluster.capacity.profile import Profile
from gptoss_local.engine.protocol import Generate, PrefixOptions
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache
from gptoss_local.engine.worker.cache.slots import Slots, common_prefix
from gptoss_local.engine.worker.costs import StepCosts
from gptoss_local.engine.worker.drafts.speculation import Speculation
from gptoss_local.engine.worker.scheduler import Scheduler, Work
from gptoss_local.engine.worker.sequence import Sequence
from gptoss_local.types import SamplingParams, StepTimes

_SAMPLING = SamplingParams()
_ARRIVAL, _END, _BEGIN = range(3)  # events at the same time come in this order


class _NoSampler:
    def unbind(self) -> None:
        pass


class _CountedContext:
    """The part of `Context` that the cache needs; moves are free, any point resumes."""

    can_share = True
    n_swa = 128

    def __init__(self, n_ctx: int, n_batch: int, n_seq: int) -> None:
        self.n_ctx, self.n_batch = n_ctx, n_batch
        self.n_seq_max = self.n_outputs_max = n_seq

    def can_resume(self, seq_id: int, position: int) -> bool:
        return True

    def remove(self, seq_id: int, position: int = 0) -> None:
        pass

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        pass

    def save(self, seq_id: int, **options: Any) -> None:
        pass

    def restore(self, seq_id: int, state: None, **options: Any) -> None:
        pass


@dataclass(slots=True, eq=False)
class Served:
    """The outcome of a request: arrival, times of tokens, and cached tokens of its prompt."""

    number: int
    arrived_s: float
    n_cached: int = 0
    times_s: list[float] = field(default_factory=list)

    @property
    def first_token_s(self) -> float:
        return self.times_s[0] - self.arrived_s

    @property
    def tok_s(self) -> float:
        """Return tokens a second after the first one; infinity for an answer of one token."""
        seconds = self.times_s[-1] - self.times_s[0]
        return (len(self.times_s) - 1) / seconds if seconds else float("inf")


class SimulatedEngine:
    """An engine with the step times of `profile`, without drafts, masks or cancels."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        context = cast(Any, _CountedContext(profile.n_ctx, profile.n_batch, profile.n_seq))
        self._slots = Slots(context)
        self._cache = PrefixCache(context, self._slots, PrefixOptions())
        steps = tuple((int(n), seconds) for n, seconds in profile.decode)
        costs = StepCosts()
        costs.know(StepTimes((), 0.0, streams=steps))
        speculation = Speculation(profile.n_ctx, 0, costs)
        self._scheduler = Scheduler(self._slots, self._cache, None, speculation, profile.n_batch)
        self._served: dict[Sequence, Served] = {}
        self._n_unread: dict[Sequence, int] = {}
        self._n_arrived = 0
        self._plan: list[Work] = []
        self._step_s, self._n_prefilled, self._is_alone = 0.0, 0, True

    @property
    def is_busy(self) -> bool:
        return bool(self._plan)

    @property
    def n_outstanding(self) -> int:
        return len(self._served)

    @property
    def n_tokens_unread(self) -> int:
        return sum(self._n_unread.values())

    def n_tokens_held(self, prompt: "array[int]") -> int:
        """Count tokens of all prompts that run or wait, and this one; shared ones count once."""
        prompts = sorted([prompt, *(s.tokens[: s.n_prompt] for s in self._served)])
        n_shared = sum(common_prefix(*pair) for pair in pairwise(prompts))
        return sum(map(len, prompts)) - n_shared

    def n_cached(self, prompt: "array[int]") -> int:
        return self._cache.match(prompt, len(prompt) - 1).n_tokens

    def add(
        self,
        served: Served,
        prompt: "array[int]",
        n_answer: int,
        caller: tuple[str, str] = ("", ""),
    ) -> None:
        request = Generate(
            seq_id=served.number,
            prompt=cast(list[int], prompt),  # it is only measured and copied
            sampling=_SAMPLING,
            stop_tokens=[],
            max_tokens=n_answer,
            drafts=False,
            caller=caller,
        )
        sequence = Sequence(request, self._n_arrived, cast(Any, _NoSampler()))
        self._n_arrived += 1
        self._served[sequence] = served
        self._n_unread[sequence] = len(prompt) - self.n_cached(prompt)
        self._scheduler.add(sequence)

    def begin_step(self) -> float | None:
        """Begin the next step; return its seconds, or None if there is nothing to do."""
        for sequence in self._scheduler.admit():
            served = self._served[sequence]
            served.n_cached = served.n_cached or sequence.n_cached
        self._cache.make_way_at_times()
        self._plan = self._scheduler.plan()
        if not self._plan:
            return None
        depths = [w.sequence.n_past for w in self._plan if w.n_tokens == 1]
        chunks = [(w.sequence.n_past, w.n_tokens) for w in self._plan if w.n_tokens > 1]
        self._step_s = self._profile.step_s(depths, chunks, self._slots.n_cells_held)
        self._n_prefilled, self._is_alone = sum(n for _, n in chunks), not depths
        return self._step_s

    def end_step(self, now_s: float) -> list[Served]:
        plan, self._plan = self._plan, []
        complete = []
        for work in plan:
            sequence, slot, is_due = work.sequence, work.sequence.own_slot, work.ends_in_sample
            n_past = sequence.n_past
            slot.tokens += sequence.tokens[n_past : n_past + work.n_tokens]
            if is_due:
                served = self._served[sequence]
                served.times_s.append(now_s)
                self._n_unread.pop(sequence, None)
                # the answer's tokens are like those that a request which follows has in its prompt
                _, reason = sequence.append([sequence.tokens[-1]], self._profile.n_ctx)
                if reason:
                    self._scheduler.release(sequence)
                    del self._served[sequence]
                    complete.append(served)
        if self._n_prefilled:
            is_alone = self._is_alone
            self._scheduler.observe_prefill(self._n_prefilled, self._step_s, is_alone=is_alone)
        else:
            self._cache.costs.learn_step(len(plan), self._slots.n_cells_held, self._step_s)
        return complete


Route = Callable[[Seq[SimulatedEngine], "array[int]"], SimulatedEngine]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that arrives, and how long the answer to it is.

    Attributes:
        at_s: When it arrives; with `follows`, how long after the end of that request.
        prompt: Its tokens in runs: an id, and how often it comes in a row.
        follows: Index of an earlier request.
        caller: Its key and connection.
    """

    at_s: float
    prompt: tuple[tuple[int, int], ...]
    n_answer: int
    follows: int | None = None
    caller: tuple[str, str] = ("", "")

    @property
    def tokens(self) -> "array[int]":
        tokens = array("i")
        for token, n in self.prompt:
            tokens.extend(array("i", [token]) * n)
        return tokens


def least_outstanding(engines: Seq[SimulatedEngine], prompt: "array[int]") -> SimulatedEngine:
    return min(engines, key=lambda engine: engine.n_outstanding)


def prefix_aware(engines: Seq[SimulatedEngine], prompt: "array[int]") -> SimulatedEngine:
    """Return the engine with the least to prefill and to hold, this prompt included.

    Source: the default cost of Dynamo's KV router 1.6: uncached tokens of prompts without a first
    token, plus the active blocks of prompts, shared ones once.
    """

    def cost(engine: SimulatedEngine) -> int:
        n_new = len(prompt) - engine.n_cached(prompt)
        return engine.n_tokens_unread + n_new + engine.n_tokens_held(prompt)

    return min(engines, key=cost)


def replay(
    requests: Seq[Arrival],
    engines: Seq[SimulatedEngine],
    route: Route = least_outstanding,
) -> list[Served]:
    """Return the outcome of each request; `route` chooses its engine when it arrives."""
    served = [Served(number, 0.0) for number in range(len(requests))]
    followers: defaultdict[int, list[int]] = defaultdict(list)
    # (when, kind, number): an arrival at the end of a step is in the next one
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
            engine.add(served[number], tokens, request.n_answer, request.caller)
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
