"""Who runs, and what goes into the next batch."""

import time
from bisect import insort
from collections.abc import Sequence as Seq
from typing import NamedTuple

from gptoss_local.engine.pace import PrefillPace
from gptoss_local.engine.sequence import Sequence
from gptoss_local.engine.slots import Slots
from gptoss_local.engine.speculation import Speculation

# Cells that must be free for every sequence to grow into before another one is admitted, so that
# it does not push one out again a few tokens later.
_ROOM_TO_GROW = 32


class Work(NamedTuple):
    """`n_tokens` of the pending tokens of a sequence, to be decoded in one step.

    Behind the last of them a draft may follow: tokens that are not the sequence's yet.
    """

    sequence: Sequence
    n_tokens: int
    draft: Seq[int] = ()

    @property
    def ends_in_sample(self) -> bool:
        return self.n_tokens == self.sequence.n_pending


class Scheduler:
    """First come, first served: both lists are in order of arrival, and nobody overtakes.

    When cells run out, the youngest running sequence gives its cells back and waits; its tokens
    are prefilled again later. So the oldest always goes on, and every request is served.
    """

    def __init__(self, slots: Slots, speculation: Speculation, n_batch: int) -> None:
        self._slots = slots
        self._speculation = speculation
        self._n_batch = n_batch
        self.pace = PrefillPace(n_batch)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.n_preempted = 0

    def add(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=lambda s: s.arrival)

    def admit(self) -> list[Sequence]:
        """Give slots to those who wait as long as there are slots and cells; return them."""
        admitted = []
        while self.waiting and self._slots.has_free and self._has_room(self.waiting[0]):
            sequence = self.waiting.pop(0)
            sequence.slot = self._slots.take()
            sequence.admitted_ns = sequence.admitted_ns or time.monotonic_ns()
            insort(self.running, sequence, key=lambda s: s.arrival)
            admitted.append(sequence)
        return admitted

    def plan(self) -> list[Work]:
        """Choose the next batch: a token of every stream, then more tokens up to the pace.

        Only streams alone have drafts: beside a prompt, a step is as long as it should be.

        Tokens that a mask has forced come before those of prompts: somebody waits for the next one.
        """
        self._make_room()
        suspects = [s for s in self.running if s.is_suspect]
        chosen = suspects[:1] or self.running
        work = [Work(s, 1) for s in chosen if s.n_pending == 1]
        forced = [s for s in chosen if s.n_pending > 1 and s.n_past >= s.n_prompt]
        others = [s for s in chosen if s.n_pending > 1 and s.n_past < s.n_prompt]
        n_left = (self.pace.n_tokens if work or forced else self._n_batch) if chosen else 0
        n_left = min(n_left, self._n_batch - len(work), self._slots.n_cells_free - len(work))
        for sequence in forced + others:
            if n_left > 0:
                work.append(Work(sequence, min(sequence.n_pending, n_left)))
                n_left -= work[-1].n_tokens
        return work if forced or others else self._with_drafts(work)

    def _with_drafts(self, work: list[Work]) -> list[Work]:
        n_cells = self._slots.n_cells_free - len(work)
        drafts = self._speculation.drafts([w.sequence for w in work], n_cells)
        return [w._replace(draft=drafts.get(w.sequence, ())) for w in work] if drafts else work

    def preempt(self, sequence: Sequence) -> None:
        """Take the slot back; the sequence waits in its old place in the queue."""
        sequence.sampler.unbind()
        self.release(sequence)
        self.add(sequence)
        self.n_preempted += 1

    def release(self, sequence: Sequence) -> None:
        """Free the slot of a running sequence, or forget a waiting one."""
        if sequence.slot is None:
            self.waiting.remove(sequence)
        else:
            self.running.remove(sequence)
            self._slots.release(sequence.slot)
            sequence.slot = None

    def _has_room(self, sequence: Sequence) -> bool:
        if not self.running:
            return True
        everybody = [*self.running, sequence]
        n_cells = sum(len(s.tokens) + _room_to_grow(s) for s in everybody)
        return n_cells <= self._slots.n_cells

    def _make_room(self) -> None:
        """Preempt until every stream has a cell for its token, or somebody one to prefill into."""
        while len(self.running) > 1:
            n_streams = sum(s.n_pending == 1 for s in self.running)
            if self._slots.n_cells_free >= max(1, n_streams):
                return
            self.preempt(self.running[-1])


def _room_to_grow(sequence: Sequence) -> int:
    return _ROOM_TO_GROW if sequence.n_left is None else min(_ROOM_TO_GROW, sequence.n_left)
