"""gpt-oss in plain PyTorch, small enough to compute every expert for every token.

Equal to transformers' `GptOssForCausalLM` up to rounding; `checkpoint` maps the names. Two things
exist in training alone: embedding and head rows are made of shared parts (see `Rows`), and the
experts' weights are rounded to MXFP4 in every forward pass.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from bench.nano.train.mxfp4 import fake_quantize
from gptoss_local.models.nano.compact import N_BITS

SWIGLU_ALPHA, SWIGLU_LIMIT = 1.702, 7.0
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """The sizes of the model; names as in config.json."""

    hidden_size: int = 256
    intermediate_size: int = 128
    n_layers: int = 8
    n_heads: int = 6
    n_kv_heads: int = 2
    head_dim: int = 64
    n_experts: int = 8
    n_experts_per_token: int = 4
    sliding_window: int = 128


def yarn(head_dim: int) -> tuple[Tensor, float]:
    """Inverse frequencies and the scale of cos and sin.

    Source: transformers `modeling_rope_utils._compute_yarn_parameters`, gpt-oss's parameters, no
    truncation of the correction range.
    """
    base, factor, n_original, beta_fast, beta_slow = 150000.0, 32.0, 4096, 32.0, 1.0
    wavelength = base ** (torch.arange(0, head_dim, 2).float() / head_dim)

    def correction(n_rotations: float) -> float:
        ratio = n_original / (n_rotations * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(base))

    low, high = max(correction(beta_fast), 0), min(correction(beta_slow), head_dim - 1)
    ramp = torch.clamp((torch.arange(head_dim // 2).float() - low) / (high - low), 0, 1)
    return ramp / (factor * wavelength) + (1 - ramp) / wavelength, 0.1 * math.log(factor) + 1.0


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS) * weight).to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, block_mask: Any) -> tuple[Tensor, Tensor]:
    """Return what each query sees and the log of its sum of scores; slowly on a CPU."""
    if q.is_cuda:
        aux = AuxRequest(lse=True)
        out, found = flex_attention(q, k, v, block_mask=block_mask, enable_gqa=True, return_aux=aux)
        return out, found.lse
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    at, row = torch.arange(q.shape[2]), torch.arange(len(q))[:, None, None, None]
    seen = block_mask.mask_mod(row, torch.zeros(()), at[:, None], at)
    scores = (q @ k.mT).float() / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).to(v.dtype) @ v, scores.logsumexp(-1)


class Attention(nn.Module):
    """Grouped-query attention with a learned sink per head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        d, n_q = shape.hidden_size, shape.n_heads * shape.head_dim
        n_kv = shape.n_kv_heads * shape.head_dim
        self.norm = Parameter(torch.ones(d))
        self.q = Parameter(torch.randn(n_q, d) * d**-0.5)
        self.k = Parameter(torch.randn(n_kv, d) * d**-0.5)
        self.v = Parameter(torch.randn(n_kv, d) * d**-0.5)
        self.o = Parameter(torch.zeros(d, n_q))
        self.q_bias, self.k_bias = Parameter(torch.zeros(n_q)), Parameter(torch.zeros(n_kv))
        self.v_bias, self.o_bias = Parameter(torch.zeros(n_kv)), Parameter(torch.zeros(d))
        self.sinks = Parameter(torch.zeros(shape.n_heads))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, block_mask: Any) -> Tensor:
        n_rows, n_tokens, _ = x.shape
        h, dtype = rms_norm(x, self.norm), x.dtype

        def heads(weight: Tensor, bias: Tensor, n_heads: int) -> Tensor:
            y = F.linear(h, weight.to(dtype), bias.to(dtype))
            return y.view(n_rows, n_tokens, n_heads, self.shape.head_dim).transpose(1, 2)

        def rotate(y: Tensor) -> Tensor:
            a, b = y.float().chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(dtype)

        q = rotate(heads(self.q, self.q_bias, self.shape.n_heads))
        k = rotate(heads(self.k, self.k_bias, self.shape.n_kv_heads))
        v = heads(self.v, self.v_bias, self.shape.n_kv_heads)
        out, lse = attend(q, k, v, block_mask)
        # A sink is one more score in the softmax whose value is nothing.
        share = torch.sigmoid(lse.float() - self.sinks.view(1, -1, 1))
        out = (out.float() * share[..., None]).to(dtype)
        flat = out.transpose(1, 2).reshape(n_rows, n_tokens, -1)
        return x + F.linear(flat, self.o.to(dtype), self.o_bias.to(dtype))


class Experts(nn.Module):
    """The mixture of experts; all of them are computed, those not chosen weigh nothing."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        n, d, ff = shape.n_experts, shape.hidden_size, shape.intermediate_size
        self.norm = Parameter(torch.ones(d))
        self.router, self.router_bias = (
            Parameter(torch.randn(n, d) * 0.02),
            Parameter(torch.zeros(n)),
        )
        self.gate, self.up = (Parameter(torch.randn(n, ff, d) * d**-0.5) for _ in range(2))
        self.gate_bias, self.up_bias = (Parameter(torch.zeros(n, ff)) for _ in range(2))
        self.down, self.down_bias = Parameter(torch.zeros(n, d, ff)), Parameter(torch.zeros(n, d))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new residual stream and how unevenly experts are used (1 is even)."""
        n, ff, d = self.gate.shape
        h, dtype = rms_norm(x, self.norm), x.dtype
        scores = F.linear(h.float(), self.router, self.router_bias)
        best, chosen = scores.topk(self.shape.n_experts_per_token, -1)
        weight = torch.zeros_like(scores).scatter(-1, chosen, best.softmax(-1))
        used, wanted = (weight > 0).float().mean((0, 1)), scores.softmax(-1).mean((0, 1))
        imbalance = (used * wanted).sum() * n / self.shape.n_experts_per_token

        def project(matrix: Tensor, bias: Tensor) -> Tensor:
            rows = fake_quantize(matrix).to(dtype).view(n * ff, d)
            y = F.linear(h, rows) + bias.view(-1).to(dtype)
            return y.view(*x.shape[:-1], n, ff).float()

        gate = project(self.gate, self.gate_bias).clamp(max=SWIGLU_LIMIT)
        up = project(self.up, self.up_bias).clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
        inner = (up + 1) * gate * torch.sigmoid(SWIGLU_ALPHA * gate) * weight[..., None]
        down = fake_quantize(self.down).to(dtype).permute(1, 0, 2).reshape(d, n * ff)
        y = F.linear(inner.to(dtype).flatten(-2), down)
        return x + y + F.linear(weight.to(dtype), self.down_bias.to(dtype).t()), imbalance


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention, self.experts = Attention(shape), Experts(shape)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, block_mask: Any
    ) -> tuple[Tensor, Tensor]:
        return self.experts(self.attention(x, cos, sin, block_mask))  # type: ignore[no-any-return]


class Rows(nn.Module):
    """Embedding or head rows of the whole vocabulary, from parts.

    Every token has a fixed code of +1 and -1; `code_map` turns it into a row, so that each of the
    201,088 tokens can be copied. Used tokens add a free row of their own, and the sum of the rows
    of their features (digits of a number, the word under its spellings); all others add `shared`.
    """

    def __init__(self, n_used: int, features: Tensor, shape: Shape, *, scale: float) -> None:
        super().__init__()
        d = shape.hidden_size
        self.free = Parameter(torch.randn(n_used, d) * scale)
        self.shared = Parameter(torch.zeros(d))
        self.code_map = Parameter(torch.randn(N_BITS, d) * (scale or 0.02) * N_BITS**-0.5)
        n_features = int(features.max()) + 1
        self.feature_rows = Parameter(torch.randn(n_features, d) * scale * 0.7)
        self.register_buffer("features", features, persistent=False)

    def table(self) -> Tensor:
        """Rows without their code part: those of used tokens, then one for all the others."""
        rows = torch.cat(
            (self.feature_rows.new_zeros(1, self.free.shape[1]), self.feature_rows[1:])
        )
        own = self.free + F.embedding(self.features, rows).sum(1)
        return torch.cat((own, self.shared[None]))

    def __call__(self, index: Tensor, codes: Tensor, dtype: torch.dtype) -> Tensor:
        own = F.embedding(index, self.table().to(dtype))
        return own + codes.to(dtype) @ self.code_map.to(dtype)


class Nano(nn.Module):
    """The model, up to the final norm; `loss` applies the head to the rows it needs.

    Args:
        features: For every used token the numbers of its features, [n_used, 4]; 0 is none.
    """

    def __init__(self, shape: Shape, features: Tensor) -> None:
        super().__init__()
        self.shape = shape
        n_used = features.shape[0]
        self.embed = Rows(n_used, features, shape, scale=0.5)
        self.head = Rows(n_used, features, shape, scale=0.0)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.norm = Parameter(torch.ones(shape.hidden_size))
        inverse_frequency, self.rope_scale = yarn(shape.head_dim)
        self.register_buffer("inverse_frequency", inverse_frequency, persistent=False)

    def forward(
        self, index: Tensor, codes: Tensor, position: Tensor, masks: tuple[Any, Any],
        dtype: torch.dtype = torch.bfloat16,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return normed hidden states [rows, tokens, d] and the mean imbalance of the experts.

        Args:
            index: Index of each token in the tables of rows, [rows, tokens].
            codes: Their codes, [rows, tokens, n_bits].
            masks: Block masks of sliding and of full layers.
        """
        x = self.embed(index, codes, dtype)
        angle = position[:, None, :, None].float() * self.inverse_frequency
        cos, sin = angle.cos() * self.rope_scale, angle.sin() * self.rope_scale
        imbalance = x.new_zeros((), dtype=torch.float32)
        for i, block in enumerate(self.blocks):
            x, uneven = block(x, cos, sin, masks[i % 2])
            imbalance = imbalance + uneven
        return rms_norm(x, self.norm), imbalance / len(self.blocks)
