"""Decide which sequences run, fill the next batch, and time its step to size later ones."""

import math
import time
from bisect import insort
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import NamedTuple

from gptoss_local.engine.llama import Batch
from gptoss_local.engine.worker.cache.archive import Archive
from gptoss_local.engine.worker.cache.prefix_cache import Match, PrefixCache
from gptoss_local.engine.worker.cache.slots import Slots, common_prefix
from gptoss_local.engine.worker.costs import PrefillPace, Rows, total
from gptoss_local.engine.worker.drafts import Speculation
from gptoss_local.engine.worker.sequence import Callers, Sequence

# Cells that must be free for every sequence to grow into before another one is admitted, so that
# it does not push one out again a few tokens later.
_ROOM_TO_GROW = 32
_UNIT = 256  # a chunk is a multiple of this many tokens: llama.cpp builds one graph for each size
_READ = 1 / 16  # of a token of an answer, for the time of one of a prompt
_WORTH_WAITING = 256  # tokens that another sequence is prefilling anyway


class Work(NamedTuple):
    """Pending tokens of a sequence for one step; a draft may follow."""

    sequence: Sequence
    n_tokens: int
    draft: Seq[int] = ()

    @property
    def ends_in_sample(self) -> bool:
        return self.n_tokens == self.sequence.n_pending


class Scheduler:
    """Both lists are served in order of priority, then of callers' turns, then of arrival.

    When cells run out, cached prefixes go first, then the last running sequence waits, with its
    tokens as a cached prefix. So each request is served once none of a higher priority waits.
    """

    def __init__(
        self,
        slots: Slots,
        cache: PrefixCache,
        archive: Archive | None,
        speculation: Speculation,
        n_batch: int,
        prompt_step_s: float = math.inf,
    ) -> None:
        self._slots = slots
        self._cache = cache
        self._archive = archive
        self._speculation = speculation
        self._costs = speculation.costs
        self._n_batch = n_batch
        self._callers = Callers()
        self.pace = PrefillPace(n_batch)
        self._pace_alone = PrefillPace(n_batch, prompt_step_s, n_first=n_batch, n_unit=_UNIT)
        self.waiting: list[Sequence] = []
        self._next: Sequence | None = None  # of those that wait; None: not known
        self.running: list[Sequence] = []
        self._turn: set[Sequence] = set()  # the streams that run now
        self._n_turn_left = 0  # its steps still to come
        self.n_preempted = self.n_cached = self._n_plans = self._n_turns = 0

    def add(self, sequence: Sequence) -> None:
        self._callers.ask(_caller(sequence))
        self.waiting.append(sequence)
        self._next = None

    def admit(self) -> list[Sequence]:
        admitted = []
        while self.waiting and self._slots.has_free:
            sequence = self._next = self._next or min(self.waiting, key=self._order)
            n_max = len(sequence.tokens) - 1
            salt = sequence.request.salt
            match = self._cache.match(sequence.tokens, n_max, salt)
            if self._is_coming(sequence, match) or not self._has_room(sequence, match):
                break
            if self._archive and self._archive.fetch(sequence.tokens, match.n_tokens, n_max, salt):
                match = self._cache.match(sequence.tokens, n_max, salt)
            self.waiting.remove(sequence)
            self._next = None
            n_asked, in_memory = sequence.n_prompt, sequence.request.in_memory
            sequence.slot = self._cache.place(
                sequence.tokens, match, n_asked=n_asked, in_memory=in_memory, salt=salt
            )
            sequence.admit()
            if not sequence.turn:
                self._callers.serve(_caller(sequence))
                self._n_turns += 1
                sequence.turn = self._n_turns
                self.n_cached += sequence.n_cached
            insort(self.running, sequence, key=lambda s: s.rank)
            admitted.append(sequence)
        return admitted

    def _order(self, sequence: Sequence) -> tuple[float, ...]:
        is_new = not sequence.turn
        turn = self._callers.rank(_caller(sequence)) if is_new else (sequence.turn,)
        return -sequence.request.priority, is_new, *turn, sequence.arrival

    def observe_prefill(self, n_prefilled: int, step_s: float, *, is_alone: bool) -> None:
        self.pace.observe(n_prefilled, step_s)
        if is_alone:
            self._pace_alone.observe(n_prefilled, step_s)
        self._cache.costs.learn_prefill(n_prefilled, step_s, is_alone=is_alone)
        self._speculation.observe((), step_s)

    def observe_decode(self, rows: Rows, step_s: float) -> None:
        self._speculation.observe(rows, step_s)
        self._cache.costs.learn_step(total(rows), self._slots.n_cells_held, step_s)

    def plan(self) -> list[Work]:
        """Choose the next batch: a token of every stream, then more tokens up to the pace.

        Without prompts there may be drafts, and streams may take turns. Tokens that a mask has
        forced come before prompts, as a client waits for the next one.
        """
        self._make_room()
        suspects = [s for s in self.running if s.is_suspect]
        chosen = suspects[:1] or self.running
        work = [Work(s, 1) for s in chosen if s.n_pending == 1]
        forced = [s for s in chosen if s.n_pending > 1 and s.n_past >= s.n_prompt]
        prompts = [s for s in chosen if s.n_pending > 1 and s.n_past < s.n_prompt]
        if not forced and not prompts:
            return self._with_drafts(self._take_turns(work))
        pace = self.pace if work or forced else self._pace_alone
        n_left = min(pace.n_tokens, self._n_batch - len(work), self._slots.n_cells_free - len(work))
        for sequence in forced + in_order(prompts):
            if n_left > 0:
                n_tokens = min(sequence.n_pending, n_left)
                work.append(Work(sequence, n_tokens))
                n_left -= n_tokens
                for other in prompts:
                    if other.rank < sequence.rank:
                        other.n_overtaken += n_tokens
        return work

    def _take_turns(self, work: list[Work]) -> list[Work]:
        """Leave streams to later turns if a step with all is too slow; longest waits first."""
        n_streams = self._costs.n_streams(len(work))
        self._n_plans += 1
        if n_streams < len(work):
            if not self._n_turn_left or not self._turn <= {w.sequence for w in work}:
                longest = sorted(work, key=lambda w: (w.sequence.n_plan, w.sequence.arrival))
                self._turn = {w.sequence for w in longest[:n_streams]}
                self._n_turn_left = self._costs.n_turn_steps(n_streams)
            self._n_turn_left -= 1
            work = [w for w in work if w.sequence in self._turn]
        for each in work:
            each.sequence.n_plan = self._n_plans
        return work

    def _with_drafts(self, work: list[Work]) -> list[Work]:
        def find_room(n_cells: int) -> int:
            self._cache.make_room(n_cells)
            return min(n_cells, self._slots.n_cells_free)

        drafts = self._speculation.drafts([w.sequence for w in work], find_room)
        return [w._replace(draft=drafts.get(w.sequence, ())) for w in work] if drafts else work

    def preempt(self, sequence: Sequence, *, is_intact: bool = True) -> None:
        """Take the slot back; the sequence waits in its old place in the queue."""
        sequence.sampler.unbind()
        self._take_slot(sequence, is_intact=is_intact)
        self.waiting.append(sequence)
        self._next = None
        self.n_preempted += 1

    def release(self, sequence: Sequence, *, is_intact: bool = True) -> None:
        n_read = sequence.n_prompt - sequence.n_cached
        n_tokens = sequence.n_generated + n_read * _READ if sequence.turn else 0.0
        self._callers.end(_caller(sequence), n_tokens)
        self._next = None
        if sequence.slot is None:
            self.waiting.remove(sequence)
        else:
            self._take_slot(sequence, is_intact=is_intact)

    def _take_slot(self, sequence: Sequence, *, is_intact: bool) -> None:
        self.running.remove(sequence)
        (self._cache.retire if is_intact else self._cache.discard)(sequence.own_slot)
        sequence.slot = None

    def check(self, sequences: Iterable[Sequence]) -> list[str]:
        problems = []
        if {id(s) for s in [*self.running, *self.waiting]} != {id(s) for s in sequences}:
            problems.append("the scheduler has other sequences than the engine")
        for sequence in self.running:
            if sequence.slot is None or sequence.slot.tokens != sequence.tokens[: sequence.n_past]:
                problems.append(f"request {sequence.request.seq_id} has other tokens than its slot")
        return problems

    def _is_coming(self, sequence: Sequence, match: Match) -> bool:
        """Return whether a running prompt will soon hold more: agents ask of the same files."""
        for other in self.running:
            is_same_owner = other.request.salt == sequence.request.salt
            if is_same_owner and other.n_past < other.n_prompt:
                n_common = common_prefix(sequence.tokens, other.tokens)
                n_elsewhere = 0 if match.slot is other.slot else match.n_tokens
                if other.n_past < n_common and n_common - n_elsewhere > _WORTH_WAITING:
                    return True
        return False

    def _has_room(self, sequence: Sequence, match: Match) -> bool:
        if not self.running:
            return True
        sequences = [*self.running, sequence]
        n_pending = sum(s.n_pending for s in sequences) - self._n_shared(match)
        n_cells = self._slots.n_cells_used + n_pending + sum(map(_room_to_grow, sequences))
        return n_cells <= self._slots.n_cells

    def _n_shared(self, match: Match) -> int:
        if match.slot is None or match.slot.is_running:
            return match.n_tokens
        running = (self._slots.n_shared(match.slot, s) for s in self._slots.running)
        return min(match.n_tokens, max(running, default=0))

    def _make_room(self) -> None:
        n_wanted = min(self._n_batch, sum(s.n_pending for s in self.running))
        self._cache.make_room(n_wanted)
        while len(self.running) > 1:
            n_needed = max(1, sum(s.n_pending == 1 for s in self.running))
            if self._slots.n_cells_free >= n_needed:
                return
            self.preempt(self.running[-1])
            self._cache.make_room(n_needed)


def _caller(sequence: Sequence) -> tuple[str, ...]:
    return str(sequence.request.priority), *sequence.request.caller


def in_order(prompts: list[Sequence]) -> list[Sequence]:
    """Let short prompts overtake long ones of equal priority, which wait for a tenth of their
    length.
    """
    order: list[Sequence] = []
    for sequence in prompts:
        at = len(order)
        while at and order[at - 1].can_wait_for(sequence):
            at -= 1
        order.insert(at, sequence)
    return order


def _room_to_grow(sequence: Sequence) -> int:
    return _ROOM_TO_GROW if sequence.n_left is None else min(_ROOM_TO_GROW, sequence.n_left)


def fill_batch(batch: Batch, plan: list[Work]) -> list[int]:
    """Lay out a batch; return the row of the last pending token of each part."""
    batch.clear()
    rows = []
    for sequence, n_tokens, draft in plan:
        slot = sequence.own_slot
        n_past = len(slot.tokens)
        if draft:
            tokens = [sequence.tokens[-1], *draft]
            last = batch.extend(tokens, n_past, slot.index, n_outputs=len(tokens))
            rows.append(last - len(draft))
        elif n_tokens == sequence.n_pending == 1:
            rows.append(batch.add(sequence.tokens[-1], n_past, slot.index))
        else:
            chunk = sequence.tokens[n_past : n_past + n_tokens]
            n_outputs = int(n_tokens == sequence.n_pending)
            rows.append(batch.extend(chunk, n_past, slot.index, n_outputs=n_outputs))
    return rows


class StepTiming:
    """Times the steps of an engine.

    Steps of prompts may overlap: `llama_decode` prepares the next while a GPU computes one. So the
    time of a step is known when the next one is launched.
    """

    def __init__(self, scheduler: Scheduler, *, overlaps: bool) -> None:
        self._scheduler, self._overlaps = scheduler, overlaps
        self._begun_s = self._launched_s = 0.0
        self._n_in_flight = 0  # tokens of the previous step, of a prompt, that was not waited for
        self._n_step_prefilled = 0
        self._rows: Rows = ()
        self.n_steps = 0
        self.n_tokens = 0  # of this step, or the last one
        self.computes_aside = False  # for most of the last step the host waited for a device

    def begin(self) -> None:
        self._begun_s = time.monotonic()

    def launch(self, plan: list[Work]) -> None:
        """Launch a step, which ends the one before it."""
        now_s = time.monotonic()
        if self._n_in_flight:
            step_s = now_s - self._launched_s
            self._scheduler.observe_prefill(self._n_in_flight, step_s, is_alone=True)
            self._begun_s = now_s
        self._launched_s = now_s
        self._rows = tuple(
            (work.sequence.slot.index, 1 + len(work.draft))
            for work in plan
            if work.n_tokens == 1 and work.sequence.slot is not None
        )
        self._n_step_prefilled = sum(work.n_tokens for work in plan if work.n_tokens > 1)
        samples = any(work.ends_in_sample for work in plan)
        self._n_in_flight = 0 if samples or not self._overlaps else self._n_step_prefilled

    def end(self) -> None:
        step_s = time.monotonic() - self._begun_s
        self.n_steps += 1
        self.computes_aside = False
        if self._n_in_flight:
            return
        if n_prefilled := self._n_step_prefilled:
            is_alone = not self._rows
            self._scheduler.observe_prefill(n_prefilled, step_s, is_alone=is_alone)
        else:
            self._scheduler.observe_decode(self._rows, step_s)
            self.computes_aside = self._launched_s - self._begun_s < 0.25 * step_s

    def forget(self) -> None:
        """Ignore the step in flight, as another one may not follow it immediately."""
        self._n_in_flight = 0
