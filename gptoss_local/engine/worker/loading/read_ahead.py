"""Bring a model's file into the page cache before llama.cpp maps it, in parallel reads."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.gguf_file import split_files

_BLOCK_BYTES = 8 * 2**20
_N_READS = 8  # at a time
_SHARE = 0.9  # of a load from a cold disk; the rest is llama.cpp's work


def read_ahead(path: Path, on_progress: Callable[[float], None]) -> float:
    """Read the blocks that the page cache lacks, unless RAM could not hold them.

    `path` is the model or its first file. `on_progress` gets the finished part of the load, from
    0.0 up to the result, which is 0.0 if nothing was missing or it is unknown. Raises
    ModelLoadError if the disk cannot be read, which would kill the process in mapped memory.
    """
    files, share, n_read = split_files(path), 0.0, 0
    try:
        n_all = sum(file.stat().st_size for file in files)
        if not hasattr(os, "RWF_NOWAIT") or n_all > psutil.virtual_memory().total:
            return 0.0
        for file in files:
            for n_bytes in filter(None, _read_cold(file)):
                n_read += n_bytes
                share = _SHARE * n_read / n_all
                on_progress(share)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error
    return share


def _read_cold(file: Path) -> Iterator[int]:
    """Read all blocks that are not in the page cache, the last first; yield the bytes of each.

    Where RAM is short the first ones stay, of layers whose experts the planner leaves on the host.
    """
    descriptor = os.open(file, os.O_RDONLY)
    size = os.fstat(descriptor).st_size

    def read(start: int) -> int:
        if _is_cached(descriptor, min(start + _BLOCK_BYTES, size) - 1):
            return 0
        return len(os.pread(descriptor, _BLOCK_BYTES, start))

    try:
        with ThreadPoolExecutor(_N_READS) as pool:
            yield from pool.map(read, reversed(range(0, size, _BLOCK_BYTES)))
    finally:
        os.close(descriptor)


def _is_cached(descriptor: int, last: int) -> bool:
    """Test a block's last byte. NOTE: the system then reads around it, so ask once."""
    try:
        os.preadv(descriptor, [bytearray(1)], last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # EOPNOTSUPP: this file system does not say
        return True
    return True
