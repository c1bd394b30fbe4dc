"""Decide how many prompt tokens a step takes, so that no client waits for it too long."""

TARGET_S = 0.075  # while other sequences wait for their next token
_MIN_TOKENS = 32


class PrefillPace:
    """Sizes prefill chunks so that a step takes about `target_s`, learning from every step.

    Args:
        n_max: Most tokens of a chunk: the batch.
        target_s: What a step should take.
        n_first: Tokens of the first chunk.
        n_unit: Chunks that are smaller than `n_max` have a multiple of it.
    """

    def __init__(
        self,
        n_max: int,
        target_s: float = TARGET_S,
        *,
        n_first: int = _MIN_TOKENS,
        n_unit: int = 1,
    ) -> None:
        self._n_max = n_max
        self._n_min = min(max(_MIN_TOKENS, n_unit), n_max)
        self._n_unit = n_unit
        self._target_s = target_s
        self.n_tokens = min(n_first, n_max)

    def observe(self, n_prefilled: int, step_s: float) -> None:
        """Learn from a step with `n_prefilled` prompt tokens.

        A step is not linear in them, so one with far fewer than the present chunk (the end of a
        prompt) teaches nothing. The pace changes by at most a factor of two a step, as machines
        stall at times.
        """
        if 2 * n_prefilled < self.n_tokens:
            return
        wanted = n_prefilled * self._target_s / max(step_s, 1e-6)
        wanted = min(max(wanted, self.n_tokens / 2), 2 * self.n_tokens)
        n_tokens = round(wanted / self._n_unit) * self._n_unit
        self.n_tokens = min(max(n_tokens, self._n_min), self._n_max)
