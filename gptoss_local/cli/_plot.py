"""A benchmark as a picture: two curves over the length of the prompt, in SVG."""

from collections.abc import Sequence
from html import escape
from math import log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gptoss_local.server.benchmark import Benchmark

_W, _H, _LEFT, _TOP, _GAP = 420, 240, 70, 50, 90  # of a panel, in pixels
_STYLE = (
    "text{font:12px sans-serif;fill:#444}.t{font-size:14px;font-weight:bold}"
    ".m{fill:none;stroke:#0a6;stroke-width:2}.e{stroke:#c60;stroke-dasharray:5 4}.g{stroke:#ddd}"
)


def draw(found: "Benchmark") -> str:
    """Two panels, reading and answering; dashed is what the planner expected."""
    panels = (
        ("read, tokens/s", [d.prefill_tok_s for d in found.depths], found.plan.speed.prefill_tok_s),
        ("answer, tokens/s", [d.decode_tok_s for d in found.depths], found.plan.speed.decode_tok_s),
    )
    lengths = [d.n_tokens for d in found.depths]
    width = _LEFT + 2 * _W + _GAP + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_TOP + _H + 50}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="100%" height="100%" fill="white"/><text class="t" x="{_LEFT}" y="22">'
        f"{escape(found.model)}, {found.n_ctx:,} tokens of context</text>"
        f'<text x="{width - 20}" y="22" text-anchor="end">by tokens of the prompt; dashed: '
        "expected of 4,096</text>",
    ]
    for i, (title, rates, expected) in enumerate(panels):
        parts += _panel(_LEFT + i * (_W + _GAP), title, lengths, rates, expected)
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    left: int, title: str, lengths: Sequence[int], rates: Sequence[float], expected: float
) -> list[str]:
    top_rate = _round_up(max(*rates, expected))
    low, high = log10(lengths[0]), log10(max(lengths[-1], lengths[0] * 10))

    def x(n_tokens: int) -> float:
        return left + _W * (log10(n_tokens) - low) / (high - low)

    def y(rate: float) -> float:
        return _TOP + _H * (1 - rate / top_rate)

    parts = [f'<text x="{left}" y="{_TOP - 10}">{title}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = y(share * top_rate)
        line = f'<line class="g" x1="{left}" x2="{left + _W}" y1="{at:.1f}" y2="{at:.1f}"/>'
        label = f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{share * top_rate:g}'
        parts += [line, f"{label}</text>"]
    for n_tokens in lengths:
        label = f'<text x="{x(n_tokens):.1f}" y="{_TOP + _H + 20}" text-anchor="middle">'
        parts.append(f"{label}{n_tokens:,}</text>")
    points = " ".join(f"{x(n):.1f},{y(r):.1f}" for n, r in zip(lengths, rates, strict=True))
    at = y(expected)
    return [
        *parts,
        f'<line class="e" x1="{left}" x2="{left + _W}" y1="{at:.1f}" y2="{at:.1f}"/>',
        f'<polyline class="m" points="{points}"/>',
    ]


def _round_up(value: float) -> float:
    """To 1, 2, 4 or 10 times a power of ten."""
    power: float = 10.0 ** int(log10(value)) if value >= 1 else 1.0
    return next(step * power for step in (1, 2, 4, 10) if step * power >= value)
