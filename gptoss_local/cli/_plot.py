"""A benchmark as a picture, in SVG or PNG, with a line about the machine."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptoss_local.machine.plan import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gptoss_local.runner.measuring import Benchmark

FORMATS = (".svg", ".png")
_EXPECTED_TOKENS = 4096
_LOG_FROM = 12  # times the smallest rate: above, a linear axis presses that to the floor


@dataclass(frozen=True)
class _Colours:
    ground: str
    text: str
    grid: str
    measured: str
    expected: str


_LIGHT = _Colours("#ffffff", "#24292f", "#d8dee4", "#0a6b4f", "#b04a00")
_DARK = _Colours("#16191d", "#e6e8ea", "#3a4048", "#4fd1a5", "#ffae57")


def draw(found: "Benchmark", measured_on: str, path: Path, *, is_dark: bool = False) -> None:
    """Write the picture; `measured_on` is the line at the bottom."""
    import matplotlib
    from matplotlib.figure import Figure

    colours, speed = _DARK if is_dark else _LIGHT, found.plan.speed
    lengths, widths = [d.n_tokens for d in found.depths], [w.n_streams for w in found.widths]
    n_panels = 2 + bool(widths)
    with matplotlib.rc_context(_style(colours)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that no font here has
        figure = Figure(figsize=(4.4 * n_panels, 4), layout="constrained")
        title = f"{found.model}, {found.n_ctx:,} tokens of context"
        figure.suptitle(title, fontsize=13, fontweight="bold")
        axes = [figure.add_subplot(1, n_panels, n + 1) for n in range(n_panels)]
        for axis, name, rates, expected in (
            (axes[0], "Reading", [d.prefill_tok_s for d in found.depths], speed.prefill_tok_s),
            (axes[1], "Answering", [d.decode_tok_s for d in found.depths], speed.decode_tok_s),
        ):
            _curve(axis, f"{name} (tokens/s)", "tokens of the prompt", lengths, rates, colours)
            _expect(axis, expected, colours)
            _scale(axis, lengths, [*rates, expected])
        if widths:
            rates = [w.decode_tok_s for w in found.widths]
            name = "Answers at the same time (tokens/s)"
            _curve(axes[2], name, "answers, all together", widths, rates, colours)
            _scale(axes[2], widths, rates)
        figure.supxlabel(measured_on, fontsize=8)
        figure.savefig(
            path, dpi=160, metadata={"Date": None} if path.suffix.lower() == ".svg" else None
        )


def _style(colours: _Colours) -> dict[Any, Any]:
    text = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    return {
        "font.size": 9,
        "text.parse_math": False,  # a name may have a $
        "svg.fonttype": "none",  # text that can be searched and copied
        "svg.hashsalt": "gptoss",
        "figure.facecolor": colours.ground,
        "axes.facecolor": colours.ground,
        "axes.edgecolor": colours.text,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": colours.grid,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "legend.labelcolor": colours.text,
        **dict.fromkeys(text, colours.text),
    }


def _curve(
    axis: "Axes",
    title: str,
    label: str,
    counts: Sequence[int],
    rates: Sequence[float],
    colours: _Colours,
) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(label)
    axis.plot(counts, rates, marker="o", color=colours.measured, label="measured", gid="measured")
    for count, rate in zip(counts, rates, strict=True):
        axis.annotate(
            words.rate(rate),
            (count, rate),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            bbox={"facecolor": colours.ground, "edgecolor": "none", "pad": 0.5},
        )


def _expect(axis: "Axes", expected: float, colours: _Colours) -> None:
    axis.plot(
        [_EXPECTED_TOKENS],
        [expected],
        marker="D",
        markerfacecolor=colours.ground,
        linestyle="",
        color=colours.expected,
        label=f"expected of {_EXPECTED_TOKENS:,} tokens: {words.rate(expected)}",
        gid="expected",
    )
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _scale(axis: "Axes", counts: Sequence[int], rates: Sequence[float]) -> None:
    """Label every count. The rates begin at 0, unless they differ too much for that."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [_short(n) for n in counts])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.margins(x=0.12)
    if max(rates) > _LOG_FROM * min(rates):
        axis.set_yscale("log")
        axis.set_ylim(min(rates) / 3, max(rates) * 2)
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(0, max(rates) * 1.2)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: words.rate(rate)))


def _short(n: int) -> str:
    return f"{n / 1024:,.0f}k" if n >= 4096 else f"{n:,}"
