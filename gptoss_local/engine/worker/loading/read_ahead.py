"""Bring a model's file into the page cache before llama.cpp maps it.

llama.cpp has the system fault a mapped file in: one thread, which waits for the disk and reports
nothing until all is there. Here several reads run at a time and report progress.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from gptoss_local.errors import ModelLoadError
from gptoss_local.formats.gguf_file import split_files

_BLOCK_BYTES = 8 * 2**20
_N_READS = 8  # at a time
_SHARE = 0.9  # of a load from a cold disk; the rest is llama.cpp's work


def read_ahead(path: Path, on_progress: Callable[[float], None]) -> float:
    """Read the blocks that the page cache lacks, unless RAM could not hold them.

    `path` is the model or the first of its files. `on_progress` gets the part of the load that is
    done, from 0.0 up to the result.

    Returns:
        The part of the load that this was: 0.0 if all was there, or the system does not say.

    Raises:
        ModelLoadError: the disk cannot be read. In mapped memory that would kill the process.
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
    """Read all blocks that are not in the page cache; yield how many bytes of each.

    The last ones first: where RAM is short the first ones stay, and the planner leaves the
    experts of these layers on the host.
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
    """Test a block's last byte. NOTE: that makes the system read around it: ask once."""
    try:
        os.preadv(descriptor, [bytearray(1)], last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # EOPNOTSUPP: this file system does not say
        return True
    return True
