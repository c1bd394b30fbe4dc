"""The line below the input: model, effort, state, speed, context, memory of the GPU."""

from collections.abc import Sequence
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from gptoss_local.api.gptoss import GpuMemory
from gptoss_local.api.models import LoadStatus
from gptoss_local.base.printable import printable
from gptoss_local.base.types import Effort
from gptoss_local.talk.answer import Answer

_MAX_NAME = 28  # characters


class Status(NamedTuple):
    model: str
    effort: Effort
    answer: Answer | None = None  # the present or the last one
    note: str = ""  # the present step while no answer streams, e.g. a running tool
    n_used: int = 0  # tokens of the context after the last finished answer, if known
    n_ctx: int | None = None  # of the loaded model
    gpus: Sequence[GpuMemory] = ()
    load: LoadStatus | None = None
    gpu_share: float = 0.0  # of the model's bytes
    preset: str = ""
    is_temporary: bool = False
    works: bool = False  # the model has the tools of `--work`


class StatusLine(Horizontal):
    """Shows figures of the engine, and estimates of the client with `~`."""

    DEFAULT_CSS = """
    StatusLine {
        height: 1;
        padding: 0 1;
        color: $text-muted;
        #facts { width: 1fr; text-overflow: ellipsis; text-wrap: nowrap; }
        #keys { width: auto; padding: 0 0 0 1; }
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

    def show(self, status: Status) -> None:
        self._facts.update(" │ ".join(status_parts(status)))
        answer = status.answer
        is_busy = bool(status.note) or (answer is not None and answer.is_live)
        self._keys.update("Esc stop" if is_busy else "F1 help")


def status_parts(status: Status) -> list[str]:
    """Return the pieces, the most important first: a narrow terminal cuts the last ones."""
    answer, n_used = status.answer, status.n_used
    parts = [_short(status.model), status.effort, _short(printable(status.preset))]
    parts.insert(0, "temporary" if status.is_temporary else "")
    parts.insert(0, "work" if status.works else "")
    if status.note:
        parts.append(status.note)
    elif answer is not None:
        parts += activity(answer, is_loaded=status.n_ctx is not None, load=status.load)
    is_live = answer is not None and answer.is_live
    if answer is not None and is_live:
        n_prompt = answer.prefill.n_prompt if answer.prefill else n_used
        n_used = n_prompt + answer.n_frames if n_prompt else 0
    if answer is not None and answer.n_left_out:
        parts.append(f"without the oldest {answer.n_left_out}")
    parts.append(context_text(n_used, status.n_ctx, is_estimate=is_live))
    parts.append(memory_text(status.gpus))
    if 0 < status.gpu_share < 1:
        parts.append(f"{100 * status.gpu_share:.0f} % on the GPU")
    return [part for part in parts if part]


def _short(name: str) -> str:
    """Shorten a long name in its middle: its end matters more in one line."""
    half = _MAX_NAME // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]}…{name[1 - half :]}"


def activity(
    answer: Answer, *, is_loaded: bool = True, load: LoadStatus | None = None
) -> list[str]:
    if answer.phase == "waiting":
        return [f"{_wait(answer, is_loaded, load)} {answer.elapsed_s:.1f} s"]
    about = "~" if answer.is_live else ""
    parts: list[str] = [answer.phase] if answer.phase != "done" else []
    if answer.tok_s is not None:
        parts.append(f"{about}{answer.tok_s:.0f} tok/s")
    if answer.ttft_s is not None:
        parts.append(f"first {answer.ttft_s:.2f} s")
    return parts


def _wait(answer: Answer, is_loaded: bool, load: LoadStatus | None) -> str:
    prefill = answer.prefill
    if prefill is None and load is not None and load.total:
        if load.status == "measuring":
            return "measuring the model, this once"
        return f"loading {load.completed / 1e9:.1f}/{load.total / 1e9:.1f} GB"
    if prefill is None:
        return "reading the prompt" if is_loaded else "loading the model"
    share = 100 * prefill.n_done // max(1, prefill.n_prompt)
    return f"reading {prefill.n_done:,}/{prefill.n_prompt:,} ({share} %)"


def context_text(n_used: int, n_ctx: int | None, *, is_estimate: bool) -> str:
    """Return `ctx 1,204/32,768 (4 %)`; empty when nothing is known."""
    if not n_used:
        return f"ctx {n_ctx:,}" if n_ctx else ""
    about = "~" if is_estimate else ""
    if not n_ctx:
        return f"ctx {about}{n_used:,}"
    return f"ctx {about}{n_used:,}/{n_ctx:,} ({100 * n_used / n_ctx:.0f} %)"


def memory_text(gpus: Sequence[GpuMemory]) -> str:
    """Return `VRAM 11.9/16.0 GiB`, of all GPUs together; empty without one."""
    if not gpus:
        return ""
    used, total = sum(gpu.used_bytes for gpu in gpus), sum(gpu.total_bytes for gpu in gpus)
    return f"VRAM {used / 2**30:.1f}/{total / 2**30:.1f} GiB"
