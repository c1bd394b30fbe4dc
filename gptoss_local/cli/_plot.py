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
    lengths, of_prompt = [d.n_tokens for d in found.depths], "tokens of the prompt"
    reading = [d.prefill_tok_s for d in found.depths]
    answering = [d.decode_tok_s for d in found.depths]
    panels: list[tuple[str, str, list[int], list[float], float | None]] = [
        ("Reading", of_prompt, lengths, reading, speed.prefill_tok_s),
        ("Answering", of_prompt, lengths, answering, speed.decode_tok_s),
    ]
    if widths := [w.n_streams for w in found.widths]:
        together = [w.decode_tok_s for w in found.widths]
        panels.append(("Answers at the same time", "answers, all together", widths, together, None))
    with style.context([colours, _STYLE]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that no font here has
        figure = Figure(figsize=(4.4 * len(panels), 4), layout="constrained")
        title = f"{found.model}, {found.n_ctx:,} tokens of context"
        figure.suptitle(title, fontsize=13, fontweight="bold")
        for axis, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
            _draw_panel(axis, *panel)
        figure.supxlabel(measured_on, fontsize=8)
        is_svg = path.suffix.lower() == ".svg"
        figure.savefig(path, dpi=160, metadata={"Date": None} if is_svg else None)


def _draw_panel(
    axis: "Axes",
    name: str,
    label: str,
    counts: Sequence[int],
    rates: Sequence[float],
    expected: float | None,
) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    axis.set_title(f"{name} (tokens/s)", fontsize=10)
    axis.set_xlabel(label)
    axis.plot(counts, rates, "o-C0", label="measured", gid="measured")
    box = {"facecolor": axis.get_facecolor(), "edgecolor": "none", "pad": 0.5}
    for count, rate in zip(counts, rates, strict=True):
        text, place = words.rate(rate), (count, rate)
        axis.annotate(
            text, place, (0, 7), textcoords="offset points", ha="center", size=8, bbox=box
        )
    if expected is not None:
        text = f"expected of {_EXPECTED_TOKENS:,} tokens: {words.rate(expected)}"
        axis.plot([_EXPECTED_TOKENS], [expected], "DC1", mfc="none", label=text, gid="expected")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        rates = [*rates, expected]
    axis.set_xscale("log", base=2)
    ticks = [f"{n / 1024:,.0f}k" if n >= 4096 else f"{n:,}" for n in counts]
    axis.set_xticks(counts, ticks)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.margins(x=0.12)
    if max(rates) > _LOG_FROM * min(rates):
        axis.set_yscale("log")
        axis.set_ylim(min(rates) / 3, max(rates) * 2)
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(0, max(rates) * 1.2)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: words.rate(rate)))
