"""Repeat a known computation, to find faults that raise no error: bad plans, weights, GPUs."""

from collections.abc import Mapping
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from gptoss_local.base.errors import ComputeError, ContextOverflowError
from gptoss_local.engine.llama.batch import Batch
from gptoss_local.engine.llama.chains import LIKELIEST, Chain
from gptoss_local.engine.llama.context import Context
from gptoss_local.engine.llama.sampler import draw_on_cpu, is_near

_TOKEN = 0  # any; the row that is compared is the second one of a sequence of two
_N_TRIES = 3  # two tokens may be equally likely but for rounding; three times in a row they are not
_TOLERANCE = 0.25
"""Root mean square difference of logits, in standard deviations: up to 0.05 on nano where moved
cells reorder sums, above 1 with wrong weights or inputs.
"""


class Canary:
    """Check one context, which must not be used at the same time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._batch = Batch(context.n_batch)
        self._known: npt.NDArray[np.float32] | None = None
        self.n_checks = 0

    def check(self, ends: Mapping[int, int]) -> None:
        """Decode a known row, and in the same step let each attached chain draw a token.

        Raises ComputeError unless the logits equal the first check's, and each chain draws the same
        token as the CPU does with the same random state, or kept the likeliest. Does nothing
        without free cells. `ends` has the position after the last token of each sequence that can
        have one more.
        """
        for n_left in reversed(range(_N_TRIES)):
            try:
                wrong = self._decode(ends)
            except ContextOverflowError:
                return
            self.n_checks += 1
            if not wrong:
                return
            if not n_left:
                raise ComputeError(f"the model runner was stopped: {wrong}")

    def _decode(self, ends: Mapping[int, int]) -> str:
        context, chains = self._context, dict[int, Chain]()
        self._batch.clear()
        for seq_id, position in list(ends.items())[: context.n_batch - 2]:
            if chain := context.chains.get(seq_id):
                self._batch.add(_TOKEN, position, seq_id)
                chains[seq_id] = chain
        states = [llama_cpp.llama_sampler_clone(chain.pointer) for chain in chains.values()]
        try:
            row = context.decode_extra(self._batch, [_TOKEN, _TOKEN])
            wrong = self._compare(context.logits(row))
            for i, (chain, state) in enumerate(zip(chains.values(), states, strict=True)):
                wrong = wrong or self._draw(i, chain, state)
            return wrong
        finally:
            for seq_id in chains:
                context.remove(seq_id, ends[seq_id])
            for state in states:
                llama_cpp.llama_sampler_free(state)

    def _compare(self, logits: npt.NDArray[np.float32]) -> str:
        if self._known is None:
            self._known = logits.copy()
        error = float(np.sqrt(np.mean((logits - self._known) ** 2)))
        if error <= _TOLERANCE * float(self._known.std()):  # False also for NaN
            return ""
        return f"a known computation gave another result ({error:.3g} off)"

    def _draw(self, row: int, chain: Chain, state: Any) -> str:
        logits = self._context.logits_beside_chains(row)
        if chain.kind == LIKELIEST:
            ids, kept = self._context.likeliest(row)
            are_ids = 0 <= ids.min() <= ids.max() < len(logits) and len(set(ids)) == len(ids)
            least = np.partition(logits, -len(ids))[-len(ids)]
            if are_ids and np.array_equal(kept, logits[ids]) and kept.min() == least:
                return ""
            return "the device kept other tokens than the likeliest"
        wanted = draw_on_cpu(state, logits, np.arange(len(logits)))
        drawn = int(llama_cpp.llama_get_sampled_token_ith(self._context.handle, row))
        llama_cpp.llama_sampler_accept(chain.pointer, drawn)  # the next try draws another number
        if is_near(logits, chain.kind, drawn, wanted):
            return ""
        return f"the device drew token {drawn} where {wanted} is right"
