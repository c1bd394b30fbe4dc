"""One run of a conversion, from the locked journal to the renamed files."""

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from typing import Self

from convert.header import SourceTensor
from convert.io_errors import writing
from convert.journal import Journal, Shard
from convert.pieces import Rounding
from convert.plan import ConversionPlan
from convert.schedule import Schedule, n_peak_bytes
from convert.tensor_map import check_sources
from convert.writer import Writer
from gptoss_local.errors import ConvertError
from gptoss_local.types import Progress
from gptoss_local.whole_file import replace

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
                f"The GGUF takes {n_needed / 1e9:.1f} GB, but {folder} has {n_free / 1e9:.1f} GB "
                "free.",
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
