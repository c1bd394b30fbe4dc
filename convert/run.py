"""One run of a conversion, from the locked journal to the renamed files."""

import contextlib
import os
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from convert.files import SourceTensor, writing
from convert.journal import Journal, Shard
from convert.pieces import Chunk, Rounding, make_pieces, plan_chunks, word_sum
from convert.plan import ConversionPlan
from convert.tensor_map import PlannedTensor, check_sources, source_names
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.types import Progress
from gptoss_local.base.whole_file import replace


class Schedule:
    """Hands out tensors as their sources arrive, all tensors of one source together."""

    def __init__(self, tensors: Iterable[PlannedTensor]) -> None:
        self._groups: defaultdict[tuple[str, ...], list[PlannedTensor]] = defaultdict(list)
        for tensor in tensors:
            self._groups[tuple(source_names(tensor))].append(tensor)
        self._missing = {sources: set(sources) for sources in self._groups}
        self._waiting_for: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
        for sources in self._groups:
            for name in sources:
                self._waiting_for[name].append(sources)

    def made_from(self, names: Iterable[str]) -> list[str]:
        groups = {sources for name in names for sources in self._waiting_for[name]}
        return [tensor.name for sources in groups for tensor in self._groups[sources]]

    def arrive(self, names: Iterable[str]) -> list[list[PlannedTensor]]:
        """Return, by source, the tensors that miss nothing now that `names` are there."""
        ready = []
        for name in names:
            for sources in self._waiting_for[name]:
                if name in self._missing[sources]:
                    self._missing[sources].remove(name)
                    if not self._missing[sources]:
                        ready.append(self._groups[sources])
        return ready

    def missing(self, done: Collection[str]) -> set[str]:
        return {
            name
            for sources, names in self._missing.items()
            for name in names
            if any(tensor.name not in done for tensor in self._groups[sources])
        }


def n_peak_bytes(
    tensors: Sequence[PlannedTensor], done: Collection[str], shards: Iterable[Shard]
) -> int:
    """Return how much more disk is taken, at most, while used shards are deleted in order."""
    schedule = Schedule(tensors)
    n_bytes = {t.name: 0 if t.name in done else t.n_bytes for t in tensors}
    n_taken = n_peak = 0
    in_use: list[tuple[Shard, set[str]]] = []
    for shard in shards:
        in_use.append((shard, set(schedule.made_from(shard.tensors))))
        for group in schedule.arrive(shard.tensors):
            n_taken += sum(n_bytes.pop(tensor.name) for tensor in group)
        n_peak = max(n_peak, n_taken)
        n_taken -= sum(s.n_bytes for s, made in in_use if not made & n_bytes.keys())
        in_use = [(s, made) for s, made in in_use if made & n_bytes.keys()]
    return max(n_peak, n_taken + sum(n_bytes.values()))


SYNC_S = 0.25  # how often complete tensors are synced and journaled, alongside the writing
_POLL_S = 0.2  # Windows delivers Ctrl-C only between two waits


class Writer:
    """Writes the tensors that are not in the journal; `after_sync` comes from any thread."""

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
            if sys.platform != "win32":
                n_written = os.pwrite(self._fd, view, offset)
            else:
                with self._lock:
                    os.lseek(self._fd, offset, os.SEEK_SET)
                    n_written = os.write(self._fd, view)
            view, offset = view[n_written:], offset + n_written

    def truncate(self, n_bytes: int) -> None:
        os.ftruncate(self._fd, n_bytes)

    def sync(self) -> None:
        getattr(os, "fdatasync", os.fsync)(self._fd)

    def close(self) -> None:
        os.close(self._fd)


SPARE_BYTES = 32 << 20  # left free on the disk, for the journal and for others


class ConversionRun:
    """Call `begin`, `write` and `rename` in this order, inside `with`."""

    def __init__(self, plan: ConversionPlan, *, delete_source: bool) -> None:
        self._plan = plan
        self._delete_source = delete_source
        self._schedule = Schedule(plan.tensors)
        self._is_damaged = self._is_done = False
        with writing(plan.target):
            self._journal = Journal(plan.target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        state = self._journal.state
        # A later run cannot use bad data, unless its source is gone by then.
        is_useful = not self._is_damaged or bool(state.gone_shards())
        is_kept = bool(state.sums) and is_useful and not self._is_done
        if not is_kept:
            with contextlib.suppress(OSError):  # the error that led here says more
                self._remove_partials()
        self._journal.close(remove=not is_kept)

    def begin(self, shards: Sequence[Shard]) -> None:
        """Continue the run of the journal if it has this plan, or start over, with known shards."""
        state = self._journal.state
        with writing(self._plan.target):
            if state.fingerprint != self._plan.fingerprint:
                self._start_over()
            self._add_shards(shards)
            if not self._has_data():
                self._start_over()
                self._add_shards(shards)
            self._check_space(shards)

    def write(
        self,
        incoming: Iterable[Shard],
        n_workers: int,
        progress: Progress | None,
        rounding: Rounding,
    ) -> None:
        if self._journal.state.is_complete:
            return
        with writing(self._plan.target):
            writer = Writer(
                self._plan, self._journal, n_workers, progress, self._after_sync, rounding
            )
        try:
            self._write_incoming(incoming, writer)
            with writing(self._plan.target):
                writer.finish()
                self._journal.set_complete()
        finally:
            writer.close()
            self._is_damaged = writer.is_damaged

    def rename(self) -> None:
        """Give every file its name, the one to load last; some may have it from an earlier run."""
        with writing(self._plan.target):
            for file in reversed(self._plan.files):
                if file.partial.exists():
                    replace(file.partial, file.path)
        self._is_done = True

    def _write_incoming(self, incoming: Iterable[Shard], writer: Writer) -> None:
        done = self._journal.state.sums.keys()
        sources: dict[str, SourceTensor] = {}
        for shard in incoming:
            if sources.keys() >= shard.tensors.keys():  # it came before
                continue
            check_sources(self._plan.tensors, shard.tensors)
            sources |= shard.tensors
            with writing(self._plan.target):
                self._add_shards([shard])
                for group in self._schedule.arrive(shard.tensors):
                    if tensors := [tensor for tensor in group if tensor.name not in done]:
                        writer.start(tensors, sources)
        if missing := self._schedule.missing(done):
            raise ConvertError(
                f"The shard with {min(missing)} never arrived.",
                hint="Finish the download, then convert again.",
            )

    def _add_shards(self, shards: Iterable[Shard]) -> None:
        for shard in shards:
            self._journal.add_shard(shard, self._schedule.made_from(shard.tensors))

    def _start_over(self) -> None:
        state = self._journal.state
        if state.gone_shards():
            raise ConvertError(
                f"{self._plan.target} was begun with other options or files, and shards that went "
                "into it have been deleted.",
                hint=f"Convert {state.source} with the options used before; or delete "
                f"{self._journal.path}, download the checkpoint again and start over.",
            )
        self._remove_partials()
        partials = [file.partial.name for file in self._plan.files]
        self._journal.begin(self._plan.source, self._plan.fingerprint, partials)

    def _has_data(self) -> bool:
        state = self._journal.state
        if state.is_complete:
            return all(
                any(
                    p.exists() and p.stat().st_size == file.n_bytes
                    for p in (file.partial, file.path)
                )
                for file in self._plan.files
            )
        for file in self._plan.files:
            places = zip(file.tensors, file.offsets, strict=True)
            ends = [offset + t.n_bytes for t, offset in places if t.name in state.sums]
            if ends and not (file.partial.exists() and file.partial.stat().st_size >= max(ends)):
                return False
        return True

    def _check_space(self, shards: Sequence[Shard]) -> None:
        folder = self._plan.target.parent
        freed: list[Shard] = []
        if self._delete_source:
            freed = [shard for shard in shards if (self._plan.source / shard.name).exists()]
        done = self._journal.state.sums.keys()
        n_needed = n_peak_bytes(self._plan.tensors, done, freed) + SPARE_BYTES
        n_free = shutil.disk_usage(folder).free
        if n_free < n_needed:
            raise ConvertError(
                f"The GGUF takes {decimal(n_needed)}, but {folder} has {decimal(n_free)} free.",
                hint="Free some space or choose a target on another disk.",
            )

    def _after_sync(self) -> None:
        if not self._delete_source:
            return
        paths = [self._plan.source / name for name in self._journal.finished_shards()]
        try:
            for path in [path for path in paths if path.exists()]:
                self._journal.sync()
                path.unlink()
        except OSError as error:
            raise ConvertError(
                f"A shard that is used up cannot be deleted: {error}.",
                hint="Convert without --delete-source, or fix the folder's permissions.",
            ) from error

    def _remove_partials(self) -> None:
        for name in self._journal.state.partials:
            self._plan.target.with_name(name).unlink(missing_ok=True)
