"""Lock weights of a mapped file in RAM, so that a GPU fetches them at full speed.

PERF: H200, PCIe 5 x16, 120b, 50 GiB on the host, a warm page cache: 4.5 s to load instead of 51 s
with load mode `none`, which copies. 20b, 7 GiB: prompts 5,821 tokens/s instead of 1,503 mapped.
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gptoss_local.engine.llama.devices import gpu_function
from gptoss_local.formats.gguf_file import read_info

_GAP_BYTES = 2**20  # smaller ones, such as biases', are locked with their neighbours
_REGISTER, _UNREGISTER = (f"ggml_backend_{verb}_host_buffer" for verb in ("register", "unregister"))


class _Part(NamedTuple):
    """Bytes `start` .. `end` - 1 of a file, or of the memory of this process."""

    start: int
    end: int


def can_pin() -> bool:
    return sys.platform == "linux" and gpu_function(_REGISTER, ctypes.c_bool) is not None


def pin(path: Path, is_wanted: Callable[[str], bool]) -> list[int]:
    """Lock tensors of a file that llama.cpp has mapped; return addresses for `unpin`, or nothing.

    NOTE: a process that has the file mapped twice does not know which copy it locks. Source:
    `ggml_backend_cuda_register_host_buffer`, ggml-cuda.cu; it needs GGML_CUDA_REGISTER_HOST.
    """
    register = gpu_function(_REGISTER, ctypes.c_bool, ctypes.c_void_p, ctypes.c_size_t)
    os.environ["GGML_CUDA_REGISTER_HOST"] = "1"
    pinned: list[int] = []
    for part in _in_memory(path, _file_parts(path, is_wanted)):
        if part is None or not register(part.start, part.end - part.start):
            unpin(pinned)
            return []
        pinned.append(part.start)
    return pinned


def unpin(addresses: list[int]) -> None:
    unregister = gpu_function(_UNREGISTER, None, ctypes.c_void_p)
    for address in addresses:
        unregister(address)


def _file_parts(path: Path, is_wanted: Callable[[str], bool]) -> list[_Part]:
    parts: list[_Part] = []
    info = read_info(path)
    for name, (start, end) in sorted(info.tensor_spans.items(), key=lambda item: item[1]):
        if is_wanted(name):
            start -= start % mmap.PAGESIZE
            end += -end % mmap.PAGESIZE
            if parts and start <= parts[-1].end + _GAP_BYTES:
                start = parts.pop().start
            parts.append(_Part(start, end))
    return parts


def _in_memory(path: Path, parts: list[_Part]) -> list[_Part | None]:
    """Return the addresses of parts of a file; None for a part that is not mapped as a whole."""
    fragments = _mapped(path)
    found: list[_Part | None] = []
    for start, end in parts:
        bases = (memory.start - at for at, memory in fragments if _holds(at, memory, start, end))
        base = next(bases, None)
        found.append(None if base is None else _Part(base + start, base + end))
    return found


def _holds(at: int, memory: _Part, start: int, end: int) -> bool:
    return at <= start and end <= at + memory.end - memory.start


def _mapped(path: Path) -> list[tuple[int, _Part]]:
    """Return offsets in the file and addresses of its mapped parts; see `proc_pid_maps(5)`."""
    wanted, found = str(path.resolve()), []
    for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).split("\n")[:-1]:
        addresses, _, offset, _, _, *name = line.split(maxsplit=5)
        if name == [wanted]:
            start, end = (int(each, 16) for each in addresses.split("-"))
            found.append((int(offset, 16), _Part(start, end)))
    return found
