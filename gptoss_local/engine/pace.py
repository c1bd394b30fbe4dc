"""How many prompt tokens a step may take while other sequences wait for their next token."""

TARGET_S = 0.075
_MIN_TOKENS = 32


class PrefillPace:
    """Sizes prefill chunks so that a step takes about `target_s`, learning from every step.

    Args:
        n_max: Most tokens of a chunk: the batch.
        target_s: What a step beside running streams should take.
    """

    def __init__(self, n_max: int, target_s: float = TARGET_S) -> None:
        self._n_max = n_max
        self._n_min = min(_MIN_TOKENS, n_max)
        self._target_s = target_s
        self.n_tokens = self._n_min

    def observe(self, n_prefilled: int, step_s: float) -> None:
        """Learn from a step with `n_prefilled` prompt tokens.

        A step is not linear in them, so one with far fewer than the present chunk (the end of a
        prompt) teaches nothing. At most a factor of two a step: a machine stalls now and then.
        """
        if 2 * n_prefilled < self.n_tokens:
            return
        wanted = round(n_prefilled * self._target_s / max(step_s, 1e-6))
        wanted = min(max(wanted, self.n_tokens // 2), 2 * self.n_tokens)
        self.n_tokens = min(max(wanted, self._n_min), self._n_max)
