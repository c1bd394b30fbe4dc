"""A benchmark as a picture, in SVG or PNG, with a line about the machine."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptoss_local.machine.plan import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gptoss_local.runner.measuring import Benchmark

FORMATS = (".svg", ".png")
_EXPECTED_TOKENS = 4096
_LOG_FROM = 12  # times the smallest rate: above, a linear axis presses that to the floor


_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.parse_math": False,  # a name may have a $
    "svg.fonttype": "none",  # text that can be searched and copied
    "svg.hashsalt": "gptoss",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def draw(found: "Benchmark", measured_on: str, path: Path, *, is_dark: bool = False) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure

    speed, colours = found.plan.speed, "dark_background" if is_dark else "default"
    lengths, widths = [d.n_tokens for d in found.depths], [w.n_streams for w in found.widths]
    n_panels = 2 + bool(widths)
    with style.context([colours, _STYLE]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that no font here has
        figure = Figure(figsize=(4.4 * n_panels, 4), layout="constrained")
        title = f"{found.model}, {found.n_ctx:,} tokens of context"
        figure.suptitle(title, fontsize=13, fontweight="bold")
        axes = [figure.add_subplot(1, n_panels, n + 1) for n in range(n_panels)]
        for axis, name, rates, expected in (
            (axes[0], "Reading", [d.prefill_tok_s for d in found.depths], speed.prefill_tok_s),
            (axes[1], "Answering", [d.decode_tok_s for d in found.depths], speed.decode_tok_s),
        ):
            _curve(axis, f"{name} (tokens/s)", "tokens of the prompt", lengths, rates)
            _expect(axis, expected)
            _scale(axis, lengths, [*rates, expected])
        if widths:
            rates = [w.decode_tok_s for w in found.widths]
            name = "Answers at the same time (tokens/s)"
            _curve(axes[2], name, "answers, all together", widths, rates)
            _scale(axes[2], widths, rates)
        figure.supxlabel(measured_on, fontsize=8)
        figure.savefig(
            path, dpi=160, metadata={"Date": None} if path.suffix.lower() == ".svg" else None
        )


def _curve(
    axis: "Axes", title: str, label: str, counts: Sequence[int], rates: Sequence[float]
) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(label)
    axis.plot(counts, rates, marker="o", color="C0", label="measured", gid="measured")
    for count, rate in zip(counts, rates, strict=True):
        axis.annotate(
            words.rate(rate),
            (count, rate),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            bbox={"facecolor": axis.get_facecolor(), "edgecolor": "none", "pad": 0.5},
        )


def _expect(axis: "Axes", expected: float) -> None:
    axis.plot(
        [_EXPECTED_TOKENS],
        [expected],
        marker="D",
        markerfacecolor="none",
        linestyle="",
        color="C1",
        label=f"expected of {_EXPECTED_TOKENS:,} tokens: {words.rate(expected)}",
        gid="expected",
    )
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _scale(axis: "Axes", counts: Sequence[int], rates: Sequence[float]) -> None:
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
