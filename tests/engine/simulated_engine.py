"""Simulate an engine: the real scheduler and cache decide, and no token is computed."""

import heapq
from array import array
from collections import defaultdict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from gptoss_local.base.types import SamplingParams, StepTimes
from gptoss_local.engine.protocol import Generate, PrefixOptions
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache
from gptoss_local.engine.worker.cache.slots import Slots
from gptoss_local.engine.worker.costs import StepCosts
from gptoss_local.engine.worker.drafts import Speculation
from gptoss_local.engine.worker.scheduler import Scheduler, Work
from gptoss_local.engine.worker.sequence import Sequence

_SAMPLING = SamplingParams()
_ARRIVAL, _END, _BEGIN = range(3)  # events at the same time come in this order


Points = tuple[tuple[float, float], ...]


class Profile(NamedTuple):
    """The sizes of an engine, and the seconds that its steps take.

    Attributes:
        decode: Seconds of a step by its streams, in an empty cache.
        prefill: Seconds of a step by its tokens of prompts, in an empty cache.
        cell_s: Added by each cell that is in use.
    """

    n_ctx: int
    n_batch: int
    n_seq: int
    decode: Points
    prefill: Points
    cell_s: float = 0.0

    def step_s(self, n_streams: int, n_prefilled: int, n_cells: int) -> float:
        """Return the seconds of a step; in a step of both, the weights are read once."""
        seconds = _at(self.prefill, n_prefilled) if n_prefilled else 0.0
        if n_streams:
            seconds += _at(self.decode, n_streams) + self.cell_s * n_cells
            seconds -= _at(self.decode, 1) if n_prefilled else 0.0
        return seconds


def _at(points: Points, x: int) -> float:
    (left, low), (right, high) = points
    return low + (high - low) * (x - left) / (right - left)


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
        self._n_arrived = 0
        self._plan: list[Work] = []
        self._step_s, self._n_prefilled, self._is_alone = 0.0, 0, True

    @property
    def is_busy(self) -> bool:
        return bool(self._plan)

    @property
    def n_outstanding(self) -> int:
        return len(self._served)

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
        n_streams = sum(w.n_tokens == 1 for w in self._plan)
        self._n_prefilled = sum(w.n_tokens for w in self._plan if w.n_tokens > 1)
        self._is_alone = not n_streams
        n_cells = self._slots.n_cells_held
        self._step_s = self._profile.step_s(n_streams, self._n_prefilled, n_cells)
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


class Arrival(NamedTuple):
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


def replay(requests: Seq[Arrival], engine: SimulatedEngine) -> list[Served]:
    """Return the outcome of each request."""
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
    while events:
        now_s, event, number = heapq.heappop(events)
        if event == _ARRIVAL:
            request = requests[number]
            served[number].arrived_s = now_s
            engine.add(served[number], request.tokens, request.n_answer, request.caller)
            if not engine.is_busy:
                heapq.heappush(events, (now_s, _BEGIN, 0))
        elif event == _END:
            for done in engine.end_step(now_s):
                for follower in followers[done.number]:
                    heapq.heappush(events, (now_s + requests[follower].at_s, _ARRIVAL, follower))
            heapq.heappush(events, (now_s, _BEGIN, 0))
        elif not engine.is_busy and (step_s := engine.begin_step()) is not None:
            heapq.heappush(events, (now_s + step_s, _END, 0))
    return served
