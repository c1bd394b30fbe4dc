"""Training on several GPUs of one machine: every process has the model and rows of its own.

Started by torchrun; without it there is one process and nothing here does anything.
"""

import os
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn import Parameter

RANK = int(os.environ.get("LOCAL_RANK", "0"))
N_PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))


def start() -> str:
    """Join the other processes; returns this one's device."""
    if not torch.cuda.is_available():
        return "cpu"
    torch.cuda.set_device(RANK)
    if N_PROCESSES > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", RANK))
    return f"cuda:{RANK}"


def stop() -> None:
    if N_PROCESSES > 1:
        dist.destroy_process_group()


def share(parameters: Sequence[Parameter]) -> None:
    """Give all processes the weights of the first."""
    if N_PROCESSES > 1:
        for parameter in parameters:
            dist.broadcast(parameter.data, 0)


def average_gradients(parameters: Sequence[Parameter]) -> None:
    """Replace every gradient by the mean over all processes."""
    if N_PROCESSES == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


class Clock:
    """How much of the training time is over, the same number in every process.

    The first process looks at its clock now and then; in between, progress grows evenly by step.

    Args:
        minutes: Of training; they begin with step `first`, when all is compiled.
    """

    LOOK_EVERY = 25

    def __init__(self, minutes: float, *, first: int = 3) -> None:
        self._duration_s, self._first = 60 * minutes, first
        self._begin_s = self._progress = self._per_step = 0.0
        self._looked_at = 0

    def progress(self, n_steps: int) -> float:
        """Progress before step `n_steps`, 0 to 1; call it once for every step."""
        if n_steps < self._first:
            return 0.0
        if n_steps == self._first:
            self._begin_s = time.monotonic()
            self._looked_at = n_steps
        elif (n_steps - self._first) % self.LOOK_EVERY == 0:
            self._look(n_steps)
        return self._progress + (n_steps - self._looked_at) * self._per_step

    def _look(self, n_steps: int) -> None:
        now = torch.tensor((time.monotonic() - self._begin_s) / self._duration_s)
        if N_PROCESSES > 1:
            now = now.cuda()
            dist.broadcast(now, 0)
        progress = float(now)
        # Averaged from the beginning, so that a pause for measuring does not look like slowness.
        self._per_step = progress / (n_steps - self._first)
        self._progress, self._looked_at = progress, n_steps
