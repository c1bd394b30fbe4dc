"""Start the shared library and keep its log.

llama.cpp reports the reason of a failure, and the sizes of its buffers, only in its log, so the
last lines are kept: they are quoted in our errors and read by `memory`.
"""

import functools
import sys
from collections import deque
from ctypes import c_void_p

import llama_cpp

from gptoss_local.printable import shown

_DEBUG, _WARN, _CONT = 1, 3, 5  # GGML_LOG_LEVEL_*, ggml.h; CONT: the rest of an earlier line
# Said of every gpt-oss: its tags are control tokens, and `<|end|>` ends a message, not the answer.
_USUAL = ("load: setting token", "load: special_eog_ids contains both")
_log_lines: deque[str] = deque(maxlen=1000)


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user_data: c_void_p) -> None:
    if level == _DEBUG:  # hundreds of lines per graph, which would push out the sizes of buffers
        return
    line = text.decode(errors="replace")
    _log_lines.append(line)
    if level >= _WARN and level != _CONT and not line.startswith(_USUAL):
        sys.stderr.write(shown(line))


@functools.cache
def start_library() -> None:
    """Initialise llama.cpp's backends once per process and take over its log."""
    llama_cpp.llama_log_set(_on_log, c_void_p(0))
    llama_cpp.llama_backend_init()


def library_version() -> str:
    """Return the version of llama-cpp-python, and so of llama.cpp, on which saved states depend."""
    return str(llama_cpp.__version__)


def has_gpu() -> bool:
    """Return whether llama.cpp was built for a GPU and finds one."""
    start_library()
    return bool(llama_cpp.llama_supports_gpu_offload())


def recent_log(n_lines: int = 3) -> str:
    """Return the last lines of llama.cpp's log: the reason of a failure that just happened."""
    return " / ".join("".join(_log_lines).strip().splitlines()[-n_lines:])


def forget_log() -> None:
    _log_lines.clear()


def whole_log() -> str:
    """Return everything logged since `forget_log`, at most the last 1000 pieces."""
    return "".join(_log_lines)
