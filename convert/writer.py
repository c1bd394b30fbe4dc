"""Writes tensors into the partial files with a pool of threads, and journals them once safe."""

import contextlib
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from convert.header import SourceTensor
from convert.journal import Journal
from convert.pieces import Chunk, Rounding, make_pieces, plan_chunks, word_sum
from convert.plan import ConversionPlan
from convert.tensor_map import PlannedTensor
from gptoss_local.errors import ConvertError
from gptoss_local.types import Progress

SYNC_S = 0.25  # how often complete tensors are synced and journaled, alongside the writing
_POLL_S = 0.2  # Windows delivers Ctrl-C only between two waits


class Writer:
    """Writes the tensors of a plan, except those in the journal.

    `after_sync` is called when the journal may have new tensors, from any thread. `is_damaged`:
    writing ended, as a source cannot be converted.
    """

    def __init__(
        self,
        plan: ConversionPlan,
        journal: Journal,
        n_workers: int,
        progress: Progress | None,
        after_sync: Callable[[], None],
        rounding: Rounding,
    ) -> None:
        done = journal.state.sums
        self.is_damaged = False
        self._plan, self._journal = plan, journal
        self._progress, self._after_sync, self._rounding = progress, after_sync, rounding
        self._n_total = plan.n_data_bytes
        self._n_done = sum(t.n_bytes for t in plan.tensors if t.name in done)
        self._report(0)
        self._files = [_PartialFile(file.partial, keep=bool(done)) for file in plan.files]
        self._places = {
            tensor.name: (out, offset)
            for out, file in zip(self._files, plan.files, strict=True)
            for tensor, offset in zip(file.tensors, file.offsets, strict=True)
        }
        self._lock = threading.Lock()  # of the next four, and of _n_done
        self._n_left = {t.name: t.n_bytes for t in plan.tensors}
        self._sums: defaultdict[str, int] = defaultdict(int)
        self._unsynced: list[str] = []
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._tasks: set[Future[None]] = set()
        self._pool = ThreadPoolExecutor(n_workers, "convert")
        self._syncer = threading.Thread(target=self._sync_often, name="convert-sync", daemon=True)
        self._syncer.start()

    def start(self, tensors: Sequence[PlannedTensor], sources: Mapping[str, SourceTensor]) -> None:
        """Queue the tensors of one source for writing, without waiting for it."""
        self._raise_failure()
        for chunk in plan_chunks(tensors, sources):
            self._tasks.add(self._pool.submit(self._write_chunk, chunk, sources))

    def finish(self) -> None:
        while self._tasks and not self._failure:
            _, self._tasks = wait(self._tasks, _POLL_S, return_when=FIRST_EXCEPTION)
        self._raise_failure()
        self._end_threads()
        self._raise_failure()
        self._sync()
        for out, file in zip(self._files, self._plan.files, strict=True):
            sums = [self._journal.state.sums[tensor.name] for tensor in file.tensors]
            out.write(np.frombuffer(file.header_with(sums), np.uint8), 0)
            out.truncate(file.n_bytes)
            out.sync()

    def close(self) -> None:
        self._end_threads()
        with contextlib.suppress(OSError, ConvertError):  # the error that led here says more
            self._sync()
        for out in self._files:
            out.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _end_threads(self) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        self._syncer.join()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
        self._stop.set()

    def _write_chunk(self, chunk: Chunk, sources: Mapping[str, SourceTensor]) -> None:
        try:
            for tensor, offset, data in make_pieces(chunk, sources, self._rounding):
                if self._stop.is_set():
                    return
                out, start = self._places[tensor.name]
                out.write(data, start + offset)
                self._add(tensor.name, data.size, word_sum(data, offset))
        except BaseException as error:
            # An unreadable file may be readable next time.
            is_bad = isinstance(error, ConvertError) and not isinstance(error.__cause__, OSError)
            self.is_damaged = self.is_damaged or is_bad
            self._fail(error)
            raise

    def _add(self, name: str, n_bytes: int, piece_sum: int) -> None:
        with self._lock:
            self._sums[name] = (self._sums[name] + piece_sum) % (1 << 64)
            self._n_left[name] -= n_bytes
            if not self._n_left[name]:
                self._unsynced.append(name)
            self._report(n_bytes)

    def _report(self, n_bytes: int) -> None:
        self._n_done += n_bytes
        if self._progress is not None:
            # Data made void by another shard of the same name is written, and counted, again.
            self._progress("convert", min(self._n_done, self._n_total), self._n_total)

    def _sync_often(self) -> None:
        try:
            while not self._stop.wait(SYNC_S):
                self._sync()
        except BaseException as error:
            self._fail(error)

    def _sync(self) -> None:
        with self._lock:
            names, self._unsynced = self._unsynced, []
        if names:
            for out in {self._places[name][0] for name in names}:
                out.sync()
            self._journal.add_sums((name, self._sums[name]) for name in names)
        self._after_sync()


class _PartialFile:
    def __init__(self, path: Path, *, keep: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._fd = os.open(path, flags if keep else flags | os.O_TRUNC, 0o666)
        self._lock = threading.Lock()  # for systems where seek and write are two steps

    def write(self, data: NDArray[np.uint8], offset: int) -> None:
        view = data.data
        while view:
            n_written = self._write_once(view, offset)
            view, offset = view[n_written:], offset + n_written

    def _write_once(self, view: memoryview, offset: int) -> int:
        if sys.platform != "win32":
            return os.pwrite(self._fd, view, offset)
        with self._lock:
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.write(self._fd, view)

    def truncate(self, n_bytes: int) -> None:
        os.ftruncate(self._fd, n_bytes)

    def sync(self) -> None:
        getattr(os, "fdatasync", os.fsync)(self._fd)

    def close(self) -> None:
        os.close(self._fd)
