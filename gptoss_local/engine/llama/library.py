"""Start the shared library and keep the end of its log, which alone has reasons and sizes."""

import contextlib
import functools
import json
import os
import re
import sys
from collections import deque
from ctypes import byref, c_bool, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import llama_cpp
import msgspec
from llama_cpp._ctypes_extensions import load_shared_library
from llama_cpp.llama_cpp import _base_path, _lib

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.printable import shown

_GPU, _IGPU = 1, 2  # GGML_BACKEND_DEVICE_TYPE_*, ggml-backend.h
_DEBUG, _WARN, _CONT = 1, 3, 5  # GGML_LOG_LEVEL_*, ggml.h; CONT: the rest of an earlier line
_BESIDE_REPACKED = "llama_adapter_lora_init_impl: lora for"  # its weights are not repacked
_USUAL = ("load: adding", _BESIDE_REPACKED)  # said of every gpt-oss
# `llama_set_embeddings_nextn(context, value, masked)` of llama-ext.h, as g++ and MSVC name it.
_SET_NEXTN = (
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
)
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
    """Initialise llama.cpp's backends once per process and capture its log."""
    llama_cpp.llama_log_set(_on_log, c_void_p(0))
    _check_build()
    _load_backends()
    llama_cpp.llama_backend_init()


def _check_build() -> None:
    """Refuse a library of another commit: llama-cpp-python's structs would not be its own."""
    made = json.loads(Path(__file__).with_name("release.json").read_text(encoding="utf-8"))
    commit = ggml("ggml_commit", c_char_p).decode().removesuffix("-dirty")
    if commit != "unknown" and not made["commit"].startswith(commit[:9]):  # git shortens it
        raise ModelLoadError(
            f"llama.cpp in {_base_path} is of commit {commit}, and gptoss needs "
            f"{made['commit']} ({made['build']})",
            hint="Install gptoss again, or take LLAMA_CPP_LIB_PATH away.",
        )


def _load_backends() -> None:
    """Load the CPU backend for this processor, and others in llama.cpp's folder.

    Wheels have a library per generation of processors, of which ggml loads the best. By itself it
    would also search the working directory, where anyone may have put one.
    """
    if ggml("ggml_backend_reg_count", c_size_t):
        return
    ggml("ggml_backend_load_all_from_path", None, c_char_p(os.fsencode(_base_path)))
    if not ggml("ggml_backend_reg_count", c_size_t):
        raise ModelLoadError(
            f"llama.cpp has no backend for this processor in {_base_path}",
            hint="Install gptoss again: `gptoss doctor` says which llama.cpp it has.",
        )


def system_info() -> str:
    """Return the features that the loaded backends use: `CPU : AVX2 = 1 | …`."""
    start_library()
    return str(llama_cpp.llama_print_system_info().decode())


def library_version() -> str:
    """Return the version that saved states depend on."""
    return str(llama_cpp.__version__)


def has_gpu() -> bool:
    """Return whether llama.cpp was built for a GPU and finds one."""
    start_library()
    return bool(llama_cpp.llama_supports_gpu_offload())


def gpu_devices() -> list[dict[str, Any]]:
    """Return the GPUs that llama.cpp finds, as `VulkanDevice`; integrated ones come last.

    As in `llama_model_load`, those are used only where there is no other.
    """
    start_library()
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for i in range(ggml("ggml_backend_dev_count", c_size_t)):
        device = c_void_p(ggml("ggml_backend_dev_get", c_void_p, c_size_t(i)))
        kind = ggml("ggml_backend_dev_type", c_int, device)
        if kind not in (_GPU, _IGPU):
            continue
        free, total = c_size_t(), c_size_t()
        ggml("ggml_backend_dev_memory", None, device, byref(free), byref(total))
        name = ggml("ggml_backend_dev_name", c_char_p, device)
        description = ggml("ggml_backend_dev_description", c_char_p, device)
        found[kind == _IGPU].append({
            "name": name.decode(),
            "description": description.decode(errors="replace"),
            "free_bytes": free.value,
            "total_bytes": total.value,
            "shares_ram": kind == _IGPU,
        })  # fmt: skip
    return found[False] or found[True]


def skip_unread_rows(context: int) -> None:
    """Have the last layer's experts compute only rows that have outputs.

    llama.cpp does so for other models by itself. For gpt-oss it keeps every row, whose hidden state
    a drafting head would read, unless it is told that such heads read rows with outputs alone.
    """
    for name in _SET_NEXTN:
        with contextlib.suppress(ModelLoadError):
            ggml(name, None, c_void_p(context), c_bool(False), c_bool(True))


def recent_log() -> str:
    return " / ".join(whole_log().strip().splitlines()[-3:])


def forget_log() -> None:
    _log_lines.clear()


def whole_log() -> str:
    return "".join(_log_lines)


def ggml(name: str, restype: type | None, *arguments: Any) -> Any:
    """Call a function of llama.cpp that llama-cpp-python does not bind."""
    function = _function(name)
    function.restype = restype
    return function(*arguments)


@functools.cache
def _function(name: str) -> Any:
    with contextlib.suppress(AttributeError):
        return _lib[name]
    for library in ("ggml", "ggml-base"):  # Windows searches only the library that it is given
        with contextlib.suppress(AttributeError, OSError):
            return _loaded(library, _base_path)[name]
    raise ModelLoadError(f"llama.cpp's libraries have no {name}")


_loaded = functools.cache(load_shared_library)
_BUFFER = re.compile(
    r": +(\S+) +(model|KV|LoRA|output|compute) buffer size = +([0-9.]+) MiB", re.IGNORECASE
)


class MemoryBuffer(msgspec.Struct, frozen=True):
    """One allocation: place (`CUDA0`, `CPU_Mapped`, …), purpose, and size to 0.01 MiB."""

    place: str
    purpose: str
    n_bytes: int


def logged_buffers() -> list[MemoryBuffer]:
    """Return the buffers reported since the log was forgotten; of equal ones the last counts."""
    found: list[MemoryBuffer] = []
    for place, purpose, mebibytes in _BUFFER.findall(whole_log()):
        if purpose == "compute":
            found = [b for b in found if (b.place, b.purpose) != (place, purpose)]
        found.append(MemoryBuffer(place, purpose.lower(), round(float(mebibytes) * 2**20)))
    return found
