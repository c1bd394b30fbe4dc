"""Read what llama.cpp allocated from its log, as the C API does not say."""

import re

import msgspec

from gptoss_local.engine.llama.library import whole_log

_BUFFER = re.compile(
    r": +(\S+) +(model|KV|output|compute) buffer size = +([0-9.]+) MiB", re.IGNORECASE
)


class MemoryBuffer(msgspec.Struct, frozen=True):
    """One allocation: `CUDA0`, `CPU_Mapped`, `CUDA_Host`, …; what for; its size to 0.01 MiB."""

    place: str
    purpose: str
    n_bytes: int


def logged_buffers() -> list[MemoryBuffer]:
    """Return the buffers reported since the log was last forgotten.

    The compute buffer may be reported more than once, as it grows; the last one counts.
    """
    found: list[MemoryBuffer] = []
    for place, purpose, mebibytes in _BUFFER.findall(whole_log()):
        if purpose == "compute":
            found = [b for b in found if (b.place, b.purpose) != (place, purpose)]
        found.append(MemoryBuffer(place, purpose.lower(), round(float(mebibytes) * 2**20)))
    return found
