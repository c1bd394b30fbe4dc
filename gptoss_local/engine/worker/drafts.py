"""Guess the next tokens by earlier occurrences of the last ones, like llama.cpp's `ngram-map-k`.

A draft decides how many tokens a step can yield, never which: all are sampled as usual.
"""

from array import array
from collections.abc import Callable
from functools import lru_cache

from gptoss_local.engine.worker.costs import Rows, StepCosts
from gptoss_local.engine.worker.sequence import Sequence

N_GRAM = 12  # tokens that must agree before a place is used
N_RESUME = 4  # the same, shortly after the place that was copied from
_RESUME_REACH = 48  # tokens around that place
_N_INDEX_MAX = 2048  # runs indexed in one step: a long prompt must not hold up other streams
_FADE, _N_WRONG_MAX = 0.98, 4.0  # of the weight of earlier guesses, per token
_N_RECENT = 32_768  # tokens of one generation of `RecentAnswers`
_MAX_LOSS = 0.005
_N_SALTS = 8  # whose answers are kept, 8 MB each


class NgramIndex:
    """The last place of each run of `N_GRAM` tokens in a list that only grows."""

    def __init__(self, tokens: "array[int]") -> None:
        self.tokens = tokens
        self._end_of: dict[int, int] = {}  # hash of a run: index after it
        self.end = N_GRAM

    def update(self, end: int) -> None:
        tokens, end_of = self.tokens, self._end_of
        for i in range(self.end, end):
            end_of[hash(tuple(tokens[i - N_GRAM : i]))] = i
        self.end = max(self.end, end)

    def find(self, tail: "array[int]") -> int | None:
        end = self._end_of.get(hash(tuple(tail)))
        if end is None or self.tokens[end - N_GRAM : end] != tail:
            return None
        return end


class RecentAnswers:
    def __init__(self) -> None:
        self._generations = [NgramIndex(array("i")) for _ in range(2)]

    def add(self, answer: "array[int]") -> None:
        newest = self._generations[0]
        if len(newest.tokens) + len(answer) > _N_RECENT:
            newest = NgramIndex(array("i"))
            self._generations = [newest, self._generations[0]]
        newest.tokens += answer
        newest.update(len(newest.tokens) + 1)

    def find(self, tail: "array[int]") -> tuple["array[int]", int] | None:
        for index in self._generations:
            if (end := index.find(tail)) is not None:
                return index.tokens, end
        return None


class Drafter:
    """Finds drafts for one sequence in its `tokens`, a growing list, and in `recent` answers."""

    def __init__(self, tokens: "array[int]", recent: RecentAnswers | None = None) -> None:
        self._index = NgramIndex(tokens)
        self._recent = recent
        self._source: tuple[array[int], int] | None = None  # continues if the next token does
        self._lost: tuple[array[int], int] | None = None  # where copying broke off
        self._n_right = self._n_wrong = 0.0  # recent guesses, drafted or not: both fade
        self.gained_s = 0.0
        """Seconds that drafts have saved, below 0 if they have cost more."""

    @property
    def has_guess(self) -> bool:
        return self._source is not None

    @property
    def acceptance(self) -> float:
        """Return the chance that a draft's next token is right, by earlier guesses."""
        return self._n_right / (self._n_right + 1 + self._n_wrong)

    def look(self) -> int:
        """Look for a continuation of the tokens so far; return how many there are to draft.

        Call it when all of them are final; `take` then gives the draft. Each call indexes a part of
        a long prompt, so its end is found only after some steps.
        """
        tokens = self._index.tokens
        self._index.update(min(len(tokens), self._index.end + _N_INDEX_MAX))
        if self._source is None:
            self._source = self._find(tokens)
            if self._source is None:
                return 0
        source, at = self._source
        return len(source) - at

    def take(self, n_tokens: int) -> list[int]:
        if self._source is None:
            return []
        source, at = self._source
        return source[at : at + n_tokens].tolist()

    def advance(self, n_accepted: int) -> None:
        if self._source is None:
            return
        source, at = self._source
        at += n_accepted
        tokens = self._index.tokens
        is_right = at < len(source) and source[at] == tokens[-1]
        fade = _FADE ** (n_accepted + 1)
        self._n_right = fade * self._n_right + n_accepted + is_right
        self._n_wrong = min(_N_WRONG_MAX, fade * self._n_wrong + (not is_right))
        if is_right:
            self._source = source, at + 1
        else:
            self._lost, self._source = (source, at), None

    def _find(self, tokens: "array[int]") -> tuple["array[int]", int] | None:
        if self._lost is not None and (found := self._resume(tokens)):
            return found
        tail = tokens[-N_GRAM:]
        if len(tail) < N_GRAM:
            return None
        if (end := self._index.find(tail)) is not None:
            return tokens, end
        return self._recent.find(tail) if self._recent else None

    def _resume(self, tokens: "array[int]") -> tuple["array[int]", int] | None:
        """Find the last few tokens near the place where copying broke off: after a small edit."""
        source, lost = self._lost or (array("i"), 0)
        tail = tokens[-N_RESUME:]
        limit = min(len(source), lost + _RESUME_REACH)
        if source is tokens:
            limit = min(limit, len(tokens) - N_RESUME)
        for end in range(max(N_RESUME, lost), limit):
            if source[end - 1] == tail[-1] and source[end - N_RESUME : end] == tail:
                return source, end
        return None


class Speculation:
    """Decides which running sequences decode a draft in the next step, and records the outcome.

    `n_draft_max` tokens a step; the context has room for all logits. Guesses are compared with the
    sampled tokens whether decoded or not. None is decoded while drafts have cost an answer more
    than `_MAX_LOSS` of its time.
    """

    def __init__(self, n_ctx: int, n_draft_max: int, costs: StepCosts) -> None:
        self.n_drafted = self.n_accepted = 0
        self._n_ctx, self.n_draft_max = n_ctx, n_draft_max
        self._recent = lru_cache(_N_SALTS)(lambda salt: RecentAnswers())
        self.drafters: dict[Sequence, Drafter] = {}
        self._drafting: list[list[Drafter]] = [[], [], []]  # in this step and the two before it
        self._n_gained = 0  # tokens
        self.costs = costs

    def start(self, sequence: Sequence) -> None:
        request = sequence.request
        is_free = request.grammar is None and not request.needs_logits
        if self.n_draft_max > 0 and request.drafts and is_free:
            self.drafters[sequence] = Drafter(sequence.tokens, self._recent(request.salt))

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
            drafter = self.drafters.get(sequence)
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
        drafter = self.drafters.get(sequence)
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
        self.drafters.pop(sequence, None)
        if self.n_draft_max > 0:
            self._recent(sequence.request.salt).add(sequence.tokens[sequence.n_prompt :])
