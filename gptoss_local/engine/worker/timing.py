"""Measure what steps take, for the code that sizes the next ones."""

import time

from gptoss_local.engine.worker.costs import Rows, StepCosts
from gptoss_local.engine.worker.scheduler import Scheduler, Work


class StepTiming:
    """Time the steps of an engine, and count their tokens.

    Steps of prompts may overlap, as the host does not wait for one that samples nothing. While a
    GPU computes it, `llama_decode` prepares the next one, which takes the host a third of that
    time, then waits and launches it. So the time of a step is known when the next one is launched.
    """

    def __init__(self, scheduler: Scheduler, costs: StepCosts, *, overlaps: bool) -> None:
        self._scheduler, self._costs, self._overlaps = scheduler, costs, overlaps
        self._begun_s = self._launched_s = 0.0
        self._n_in_flight = 0  # tokens of the previous step, of a prompt, that was not waited for
        self._n_step_prefilled = 0
        self._rows: Rows = ()
        self.n_steps = self.n_prefilled = self.n_decoded = 0
        self.computes_aside = False  # for most of the last step the host waited for a device

    def begin(self) -> None:
        self._begun_s = time.monotonic()

    def launch(self, plan: list[Work]) -> None:
        """The step before it is done when this one is launched."""
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
        self.n_prefilled += self._n_step_prefilled
        self.n_decoded += sum(n_rows for _, n_rows in self._rows)
        self.computes_aside = False
        if self._n_in_flight:
            return
        if n_prefilled := self._n_step_prefilled:
            is_alone = not self._rows
            self._scheduler.observe_prefill(n_prefilled, step_s, is_alone=is_alone)
            self._costs.interrupt()
        else:
            self._costs.observe(self._rows, step_s)
            self.computes_aside = self._launched_s - self._begun_s < 0.25 * step_s

    def forget(self) -> None:
        """Ignore the step in flight, as another one may not follow it immediately."""
        self._n_in_flight = 0
