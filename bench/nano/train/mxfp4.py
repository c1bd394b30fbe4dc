"""MXFP4 for training: blocks of 32 values share a power of two, each value is one of E2M1.

Source of the format: OCP Microscaling Formats 1.0, 5.2 and 5.4; nibble and byte order as in gpt-oss
checkpoints (low nibble first).
"""

import torch
from torch import Tensor

BLOCK = 32
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
EXPONENT_BIAS = 127


def _round_e2m1(x: Tensor) -> Tensor:
    size = x.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.sign(x) * torch.clamp(torch.round(size / step) * step, max=6.0)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round to MXFP4; of two possible exponents each block takes the one with the smaller error.

    Args:
        weight: [..., K], K divisible by 32.

    Returns:
        Values on the E2M1 grid [..., K/32, 32], exponents [..., K/32, 1].
    """
    blocks = weight.float().reshape(*weight.shape[:-1], -1, BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-20)
    low = (torch.floor(torch.log2(largest)) - 2).clamp(-120, 120)
    best_values, best_exponent, best_error = blocks, low, None
    for exponent in (low, low + 1):
        scale = torch.exp2(exponent)
        values = _round_e2m1(blocks / scale)
        error = (values * scale - blocks).pow(2).sum(-1, keepdim=True)
        if best_error is None:
            best_values, best_error = values, error
            continue
        is_better = error < best_error
        best_values = torch.where(is_better, values, best_values)
        best_exponent = torch.where(is_better, exponent, best_exponent)
    return best_values, best_exponent


def fake_quantize(weight: Tensor) -> Tensor:
    """The rounded weight, with the gradient of the unrounded one."""
    values, exponent = quantize(weight)
    rounded = (values * torch.exp2(exponent)).reshape(weight.shape)
    return weight + (rounded - weight).detach()


def pack(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize for a checkpoint.

    Returns:
        Blocks [..., K/32, 16] and scales [..., K/32], both uint8.
    """
    values, exponent = quantize(weight)
    grid = torch.tensor(E2M1, device=weight.device)
    code = (values.abs()[..., None] == grid).float().argmax(-1).to(torch.uint8)
    code |= (values < 0).to(torch.uint8) << 3
    blocks = code[..., 0::2] | (code[..., 1::2] << 4)
    return blocks, (exponent.squeeze(-1) + EXPONENT_BIAS).to(torch.uint8)


def unpack(blocks: Tensor, scales: Tensor) -> Tensor:
    """The values that `pack` stored, [..., K] float32."""
    grid = torch.tensor((*E2M1, *(-value for value in E2M1)))
    values = grid[torch.stack((blocks & 15, blocks >> 4), -1).long()].flatten(-2)
    return (values * torch.exp2(scales.float() - EXPONENT_BIAS)[..., None]).flatten(-2)
