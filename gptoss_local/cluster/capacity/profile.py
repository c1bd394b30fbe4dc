"""Predict how long a step takes on a machine, from measurements there."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from gptoss_local.runner.measuring import N_ANSWER, WIDTH_PROMPT, AtDepth, AtWidth

_MASKED = 0.25  # of a CPU's time for an own cell, for a cell of another sequence; nano, 2 cores
_TILE = 64  # tokens that ggml's attention takes together on a CPU (GGML_FA_TILE_Q), in wide steps
_N_FEW = 32  # tokens of a prompt, below which a step costs less than the line through longer ones

Points = tuple[tuple[float, float], ...]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with a model in memory: its sizes, and the seconds that its steps take.

    llama.cpp looks at every cell that is in use, whichever sequence has it. A CPU does little for
    the cells of others, and nothing when it prefills one prompt alone.

    Attributes:
        decode: Seconds of a step by its streams, in an empty cache.
        prefill: Seconds of a step by its tokens of prompts, in an empty cache, superlinear.
        row_cell_s: Added by a cell for each row, or on a GPU for all rows of a step together.
        token_cell_s: Added by a cell that was in use before, for each token of a prompt.
    """

    n_ctx: int
    n_batch: int
    n_seq: int
    decode: Points
    prefill: Points
    row_cell_s: float = 0.0
    token_cell_s: float = 0.0
    has_gpu: bool = False

    @property
    def n_rows_max(self) -> int:
        return int(self.decode[-1][0])

    def step_s(
        self, depths: Sequence[int], chunks: Sequence[tuple[int, int]], n_cells_held: int
    ) -> float:
        """Return the seconds of a step; the extra cost of a first row counts once.

        `depths` are the tokens before each stream's, `chunks` pairs of a prompt's cached tokens and
        those that this step prefills. `n_cells_held` counts running sequences and cached prefixes.
        """
        seconds, n_tokens = 0.0, sum(n for _, n in chunks)
        if depths:
            n_seen = _n_seen(sum(depths), len(depths), n_cells_held, has_gpu=self.has_gpu)
            seconds += _at(self.decode, len(depths)) + self.row_cell_s * n_seen
        if chunks:
            seconds += _at(self.prefill, n_tokens)
            seconds += self.token_cell_s * self._n_seen_by_prompts(depths, chunks, n_cells_held)
        if depths and chunks:
            first_s = _at(self.decode, 1)
            seconds -= max(0.0, min(first_s, 2 * first_s - _at(self.decode, 2)))
        return seconds

    def _n_seen_by_prompts(
        self, depths: Sequence[int], chunks: Sequence[tuple[int, int]], n_held: int
    ) -> float:
        """Weigh the cells that prompts look at; on a CPU they share a stream's tiles."""
        n_tokens, n_own = sum(n for _, n in chunks), sum(n * n_past for n_past, n in chunks)
        if self.has_gpu:
            return n_tokens * n_held
        if not depths and len(chunks) == 1:
            return n_own
        is_tiled = len(depths) + n_tokens >= _TILE
        n_by_streams = _TILE * sum(depths) if is_tiled else 0
        return n_by_streams + _n_seen(n_own, n_tokens, n_held, has_gpu=False)


def from_benchmark(
    depths: Sequence[AtDepth],
    widths: Sequence[AtWidth],
    *,
    n_ctx: int,
    n_batch: int,
    n_seq: int,
    has_gpu: bool,
) -> Profile:
    """Return the profile of a benchmark; no more sequences run than were measured.

    `depths` (at least one) begin with the shortest, `widths` with the narrowest. `has_gpu`: at
    least a part of the model is in VRAM.
    """

    def n_seen(n_rows: int, n_own: float, n_cached: int) -> float:
        return _n_seen(n_rows * n_own, n_rows, n_rows * n_own + n_cached, has_gpu=has_gpu)

    seen = [n_seen(1, d.n_tokens + N_ANSWER / 2, d.n_cells_cached) for d in depths]
    token_s, row_cell_s = _fit(
        [(1.0, n) for n in seen], [1 / d.decode_tok_s for d in depths], ((0, 1), (0,))
    )
    decode: list[tuple[float, float]] = [(1, token_s)]
    if widths:
        n_own = WIDTH_PROMPT + N_ANSWER / 2
        steps = [(w, w.n_streams / w.decode_tok_s) for w in widths]
        decode = [
            # NOTE: a figure that is off must not make a step free
            (w.n_streams, max(s / 2, s - row_cell_s * n_seen(w.n_streams, n_own, w.n_cells_cached)))
            for w, s in steps
        ]
    step_s, prompt_token_s, pair_s, token_cell_s = _fit(
        [_prompt_terms(d, n_batch, d.n_cells_cached if has_gpu else 0) for d in depths],
        [d.n_tokens / d.prefill_tok_s for d in depths],
        ((0, 1, 2, 3), (0, 1, 3), (1, 2, 3), (0, 1), (1, 2), (1, 3), (1,)),
    )
    # NOTE: the cells of a sliding window are few, so a token costs less for each one before the
    # step than for each one in it, where llama.cpp computes all pairs
    sizes = [n_batch >> n for n in range(n_batch.bit_length()) if n_batch >> n > _N_FEW]
    line = [
        (n, step_s + n * prompt_token_s + n * n * pair_s)
        for n in (min(_N_FEW, n_batch), *reversed(sizes))
    ]
    return Profile(
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_seq=min(n_seq, int(decode[-1][0])),
        decode=tuple(decode),
        prefill=((1, min(decode[0][1], line[0][1])), *line),
        row_cell_s=row_cell_s,
        token_cell_s=token_cell_s,
        has_gpu=has_gpu,
    )


def _n_seen(n_own: float, n_rows: int, n_held: float, *, has_gpu: bool) -> float:
    if has_gpu:
        return n_held
    return n_own + _MASKED * max(0.0, n_rows * n_held - n_own)


def _prompt_terms(depth: AtDepth, n_batch: int, n_others: int) -> tuple[float, ...]:
    starts = range(0, depth.n_tokens, n_batch)
    chunks = [(n_past, min(n_batch, depth.n_tokens - n_past)) for n_past in starts]
    n_pairs = sum(n * n for _, n in chunks)
    n_before = sum(n * (n_others + n_past) for n_past, n in chunks)
    return len(chunks), depth.n_tokens, n_pairs, n_before


def _fit(
    terms: Sequence[Sequence[float]], seconds: Sequence[float], choices: Sequence[Sequence[int]]
) -> list[float]:
    import numpy as np

    weights = 1 / np.array(seconds)
    for chosen in choices:
        table = np.array([[row[n] for n in chosen] for row in terms]) * weights[:, None]
        costs = np.linalg.lstsq(table, np.ones(len(seconds)), rcond=None)[0]
        if len(chosen) == 1 or (len(chosen) <= len(seconds) and min(costs) >= 0):
            break
    found = [0.0] * len(terms[0])
    for n, cost in zip(chosen, costs, strict=True):
        found[n] = float(cost)
    return found


def _at(points: Points, x: float) -> float:
    """Interpolate `points` at `x`; the line continues as it ends."""
    if x <= points[0][0] or len(points) == 1:
        return points[0][1]
    (left, low), (right, high) = next(
        (pair for pair in pairwise(points) if x <= pair[1][0]), points[-2:]
    )
    return low + (high - low) * (x - left) / (right - left)
