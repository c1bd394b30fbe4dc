"""Shows the times of the last answer: prefill, first token, decode, a bar per token."""

from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Sparkline, Static

from gptoss_local.base.quantities import per_token
from gptoss_local.talk.answer import Answer

_MAX_BARS = 240


class SpeedPanel(Vertical):
    DEFAULT_CSS = """
    SpeedPanel {
        height: auto; display: none; padding: 0 1; border-top: solid $text-primary;
        color: $text-muted;
        Static { height: auto; }
        Sparkline { height: 2; }
        Sparkline > .sparkline--max-color { color: $warning; }
        Sparkline > .sparkline--min-color { color: $success; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._facts = Static("No answer is finished yet.", markup=False)
        self._bars = Sparkline([], summary_function=max)

    def compose(self) -> ComposeResult:
        yield self._facts
        yield self._bars

    def show_live(self, answer: Answer) -> None:
        if not self.display or not answer.latencies_s:
            return
        latencies_ms = [seconds * 1e3 for seconds in answer.latencies_s[-_MAX_BARS:]]
        first = f"first token {answer.ttft_s:.2f} s   " if answer.ttft_s else ""
        speed = f"~{answer.tok_s:.0f} tok/s" if answer.tok_s else ""
        self._show([f"{first}answer {speed}", latency_text(latencies_ms)], latencies_ms)

    def show(self, stats: Mapping[str, Any]) -> None:
        self._show(stats_lines(stats), stats.get("latencies_ms", []))

    def _show(self, lines: list[str], latencies_ms: Sequence[float]) -> None:
        self._facts.update("\n".join(lines))
        self._bars.data = list(latencies_ms)
        self._bars.display = len(latencies_ms) > 1


def stats_lines(stats: Mapping[str, Any]) -> list[str]:
    """Return the engine's figures of an answer in words; `~` marks derived ones."""
    if not stats.get("eval_count"):
        return ["No answer is finished yet."]
    n_prompt, n_cached = stats.get("prompt_eval_count", 0), stats.get("prompt_cached_count", 0)
    prefill_s, n_new = stats.get("prompt_eval_duration", 0) / 1e9, n_prompt - n_cached
    decode_s = stats.get("eval_duration", 0) / 1e9
    line = f"prompt {n_prompt:,} tokens"
    if prefill_s > 0:
        line += f", {n_new:,} read in {prefill_s:.2f} s ({n_new / prefill_s:,.0f} tok/s)"
    if n_cached:
        saved = f", ~{n_cached * prefill_s / n_new:.1f} s saved" if n_new and prefill_s else ""
        line += f", {n_cached:,} from the cache{saved}"
    lines = [line]
    line = f"answer {stats['eval_count']:,} tokens"
    if decode_s > 0:
        line += f" in {decode_s:.2f} s ({stats['eval_count'] / decode_s:.0f} tok/s)"
    if stats.get("ttft_s") is not None:
        line += f", first token after {stats['ttft_s']:.2f} s"
    if (load_s := stats.get("load_duration", 0) / 1e9) > 0.1:
        line += f", {load_s:.1f} s of it for the model to load"
    lines.append(line)
    if joules := stats.get("joules"):
        lines.append(energy_text(joules, stats["eval_count"]))
    if latencies_ms := stats.get("latencies_ms"):
        lines.append(latency_text(latencies_ms))
    return lines


def energy_text(joules: Mapping[str, float], n_tokens: int) -> str:
    all_j = sum(joules.values())
    parts = ", ".join(f"{device} {j:,.1f} J" for device, j in joules.items())
    return f"energy {all_j:,.1f} J ({parts}), {per_token(all_j / n_tokens)}"


def latency_text(latencies_ms: Sequence[float]) -> str:
    """Describe how evenly the tokens came. Several together (drafts) arrive as one frame."""
    ordered = sorted(latencies_ms)
    median, p95 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
    return f"between tokens: median {median:.1f} ms, p95 {p95:.1f} ms, most {ordered[-1]:.1f} ms"
