"""Decide which running sequences decode a draft in the next step, and record the outcome.

Guesses are compared with the sampled tokens whether decoded or not. None is decoded while drafts
have cost an answer more than `_MAX_LOSS` of its time.
"""

from collections.abc import Callable
from functools import lru_cache

from gptoss_local.engine.worker.costs import Rows, StepCosts
from gptoss_local.engine.worker.drafts.draft import Drafter, RecentAnswers
from gptoss_local.engine.worker.sequence import Sequence

_MAX_LOSS = 0.005
_N_SALTS = 8  # whose answers are kept, 8 MB each


class Speculation:
    """Drafts of all sequences, `n_draft_max` tokens a step; the context has room for all logits."""

    def __init__(self, n_ctx: int, n_draft_max: int, costs: StepCosts) -> None:
        self.n_drafted = self.n_accepted = 0
        self._n_ctx, self.n_draft_max = n_ctx, n_draft_max
        self._recent = lru_cache(_N_SALTS)(lambda salt: RecentAnswers())
        self._drafting: list[list[Drafter]] = [[], [], []]  # in this step and the two before it
        self._n_gained = 0  # tokens
        self.costs = costs

    def start(self, sequence: Sequence) -> None:
        request = sequence.request
        is_free = request.grammar is None and not request.needs_logits
        if self.n_draft_max > 0 and request.drafts and is_free:
            sequence.drafter = Drafter(sequence.tokens, self._recent(request.salt))

    def drafts(
        self, streams: list[Sequence], find_room: Callable[[int], int]
    ) -> dict[Sequence, list[int]]:
        """Return the tokens to decode after the last one of each stream, as far as `find_room` has
        room.
        """
        drafts: dict[Sequence, list[int]] = {}
        n_rows, n_left = len(streams), self.n_draft_max
        plain_s = self.costs.plain_s(n_rows)
        for sequence in streams:
            drafter = sequence.drafter
            if drafter is None or n_left <= 0 or not (n_found := drafter.look()):
                continue
            if drafter.gained_s < -_MAX_LOSS * sequence.n_generated * plain_s:
                continue
            n_max = min(n_found, n_left, sequence.n_room(self._n_ctx) - 1)
            n = self.costs.draft_length(n_rows, drafter.acceptance, n_max)
            if n and (n := find_room(n_rows + n) - n_rows) > 0:
                drafts[sequence] = drafter.take(n)
                n_rows += n
                n_left -= n
        return drafts

    def advance(self, sequence: Sequence, n_drafted: int, n_accepted: int) -> None:
        drafter = sequence.drafter
        if drafter is None or not drafter.has_guess:
            return
        drafter.advance(n_accepted)
        if n_drafted:
            self._drafting[0].append(drafter)
        self._n_gained += n_accepted
        sequence.n_drafted += n_drafted
        sequence.n_accepted += n_accepted
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted

    def observe(self, rows: Rows, step_s: float) -> None:
        """Learn from a step and maybe two after a draft, which may be slow because of it."""
        if booked := next(filter(None, self._drafting), []) if rows else []:
            plain_s = self.costs.plain_s(len(rows)) * (1 + self._n_gained / len(rows))
            for drafter in booked:
                drafter.gained_s += (plain_s - step_s) / len(booked)
        self._drafting, self._n_gained = [[], *self._drafting[:-1]], 0
        self.costs.observe(rows, step_s)

    def finish(self, sequence: Sequence) -> None:
        """Keep the answer as a source of drafts for others of its salt."""
        if self.n_draft_max > 0:
            self._recent(sequence.request.salt).add(sequence.tokens[sequence.n_prompt :])
