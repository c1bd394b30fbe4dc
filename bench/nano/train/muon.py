"""Muon: momentum whose update is made orthogonal, for weight matrices.

Source: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks", `muon.py`.
"""

from collections import defaultdict

import torch
from torch import Tensor
from torch.nn import Parameter


@torch.compile(dynamic=False)
def orthogonalize(gradient: Tensor) -> Tensor:
    """Bring all singular values near 1 by five Newton-Schulz steps; works on stacks of matrices."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.bfloat16()
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if is_tall else x


class Muon:
    """Steps matrices of equal shape together.

    Args:
        parameters: Matrices, or stacks of them.
        lr: Learning rate at full schedule.
    """

    def __init__(
        self,
        parameters: list[Parameter],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.05,
    ) -> None:
        self._lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        by_shape: dict[torch.Size, list[Parameter]] = defaultdict(list)
        for parameter in parameters:
            by_shape[parameter.shape].append(parameter)
        self._groups = list(by_shape.values())
        self.buffers = [torch.zeros_like(torch.stack(list(g))) for g in self._groups]

    @torch.no_grad()
    def step(self, schedule: float) -> None:
        """Apply the gradients; `schedule` scales the learning rate."""
        lr = self._lr * schedule
        for group, buffer in zip(self._groups, self.buffers, strict=True):
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            buffer.lerp_(gradient, 1 - self._momentum)
            update = gradient.lerp(buffer, self._momentum)
            shape = update.shape
            direction = orthogonalize(update.view(-1, *shape[-2:])).view(shape).float()
            direction *= max(1, shape[-2] / shape[-1]) ** 0.5
            torch._foreach_mul_(group, 1 - lr * self._weight_decay)
            torch._foreach_add_(group, list(direction.unbind(0)), alpha=-lr)
