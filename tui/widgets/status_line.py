"""The line below the input: model, effort, what happens, speed, context."""

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from gptoss_local.types import Effort
from tui.answer import Answer


class StatusLine(Horizontal):
    """Figures with `~` are estimates of the client, the others are the engine's."""

    DEFAULT_CSS = """
    StatusLine {
        height: 1;
        padding: 0 1;
        color: $text-muted;
        #facts { width: 1fr; text-overflow: ellipsis; text-wrap: nowrap; }
        #keys { width: auto; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._facts = Static(id="facts", markup=False)
        self._keys = Static("F1 help", id="keys", markup=False)

    def compose(self) -> ComposeResult:
        yield self._facts
        yield self._keys

    @property
    def text(self) -> str:
        return str(self._facts.content)

    def show(
        self, model: str, effort: Effort, answer: Answer | None, n_used: int, n_ctx: int | None
    ) -> None:
        """Update all of it.

        Args:
            model: Its name.
            effort: What the next answer is made with.
            answer: The one that streams, or the last one.
            n_used: Tokens of the context after the last finished answer; 0 if unknown.
            n_ctx: Tokens of context the model is loaded with; None if it is not loaded.
        """
        parts = [model, effort]
        if answer is not None:
            parts += activity(answer, is_loaded=n_ctx is not None)
            if answer.is_live and n_used:
                n_used += answer.n_frames
        if context := context_text(n_used, n_ctx, is_estimate=bool(answer and answer.is_live)):
            parts.append(context)
        self._facts.update(" │ ".join(parts))
        self._keys.update("Esc stop" if answer is not None and answer.is_live else "F1 help")


def activity(answer: Answer, *, is_loaded: bool = True) -> list[str]:
    """What an answer does, and how fast."""
    if answer.phase == "waiting":
        what = "reading the prompt" if is_loaded else "loading the model"
        return [f"{what} {answer.elapsed_s:.1f} s"]
    about = "~" if answer.is_live else ""
    parts: list[str] = [answer.phase] if answer.phase != "done" else []
    if answer.tok_s is not None:
        parts.append(f"{about}{answer.tok_s:.0f} tok/s")
    if answer.ttft_s is not None:
        parts.append(f"first {answer.ttft_s:.2f} s")
    return parts


def context_text(n_used: int, n_ctx: int | None, *, is_estimate: bool) -> str:
    """`ctx 1,204/32,768 (4 %)`; empty when nothing is known."""
    if not n_used:
        return f"ctx {n_ctx:,}" if n_ctx else ""
    about = "~" if is_estimate else ""
    if not n_ctx:
        return f"ctx {about}{n_used:,}"
    return f"ctx {about}{n_used:,}/{n_ctx:,} ({100 * n_used / n_ctx:.0f} %)"
