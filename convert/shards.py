"""Yields the shards that a conversion reads: all of a folder, or each one as it arrives."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from convert.checkpoint import merge_shards, names_by_shard, read_shard, read_tensors
from convert.header import SourceTensor
from convert.io_errors import reading
from convert.journal import JournalState, Shard
from convert.layout import INDEX_NAME, SINGLE_NAME, complete_parts, find_weights
from gptoss_local.base.errors import ConvertError


def local_shards(source: Path, earlier: JournalState) -> list[Shard]:
    """Find the shards of a complete folder by name, with deleted ones from a journal."""
    try:
        tensors = read_tensors(source)
    except ConvertError:
        gone, finished = earlier.gone_shards(), earlier.finished_shards()
        if not gone & finished:
            raise
        if missing := gone - finished:
            raise ConvertError(
                f"The shard {source / min(missing)} is missing.", hint="Finish the download first."
            ) from None
        return [
            shard if name in gone else _arrived(source, source / name, shard.tensors)
            for name, shard in sorted(earlier.shards(source).items())
        ]
    by_path: defaultdict[Path, dict[str, SourceTensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        by_path[tensor.path][name] = tensor
    return [_shard(source, path, by_path[path]) for path in sorted(by_path)]


def arriving_shards(
    source: Path, arrivals: Iterable[Path], earlier: JournalState
) -> tuple[Collection[str], Iterator[Shard]]:
    """Return the names of all tensors, and the shards as they come to a folder.

    Small files are there already. Without an index, all shards are waited for first, as only they
    list their tensors.
    """
    folder = find_weights(source)
    if (folder / INDEX_NAME).is_file():
        names_in = names_by_shard(folder)
        names = [name for held in names_in.values() for name in held]
        expected = (path for path in arrivals if path.name in names_in)
        return names, (
            _arrived(source, folder / path.name, names_in[path.name]) for path in expected
        )
    return _arriving_without_index(source, folder, arrivals, earlier)


def _arriving_without_index(
    source: Path, folder: Path, arrivals: Iterable[Path], earlier: JournalState
) -> tuple[Collection[str], Iterator[Shard]]:
    finished = earlier.finished_shards()
    known = [shard for name, shard in earlier.shards(source).items() if name in finished]
    arrived = [_arrived(source, folder / path.name, None) for path in arrivals]
    if not (known or arrived):
        raise ConvertError(
            f"{folder / SINGLE_NAME} never arrived.", hint="Finish the download first."
        )
    new = [shard for shard in arrived if shard.name not in {each.name for each in known}]
    complete_parts((Path(shard.name).name for shard in (*known, *new)), str(folder))
    merged = merge_shards((source / shard.name, shard.tensors) for shard in (*known, *new))
    return merged, iter(arrived)


def _arrived(source: Path, path: Path, names: Collection[str] | None) -> Shard:
    with reading(path):
        return _shard(source, path, read_shard(path, names))


def _shard(source: Path, path: Path, tensors: dict[str, SourceTensor]) -> Shard:
    stat = path.stat()
    name = path.relative_to(source).as_posix()
    return Shard(name, stat.st_size, stat.st_mtime_ns, tensors)
