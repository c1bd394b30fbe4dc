"""Joins hub and converter: a repository becomes a GGUF while its shards arrive."""

import contextlib
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Unpack

from convert import ConvertOptions, convert_checkpoint, finished_shards
from gptoss_local.hub import HubCheckpoint, open_checkpoint
from gptoss_local.types import Progress

N_PARALLEL = 4


def pull_checkpoint(
    source: str,
    target: Path,
    *,
    folder: Path | None = None,
    original: bool = False,
    n_workers: int | None = None,
    delete_source: bool = False,
    progress: Progress,
    **options: Unpack[ConvertOptions],
) -> list[Path]:
    """Download a checkpoint of the hub and convert each shard as it arrives.

    Interrupted, the same call continues both: nothing is fetched or converted twice.

    Args:
        source: `OWNER/NAME` or `OWNER/NAME@REVISION`.
        target: The GGUF to write.
        folder: Where the files go. By default a folder beside `target` whose shards go as soon as
            they are used, and which goes with the last of them.
        original: Take the `original/` layout.
        n_workers: As for `convert_checkpoint`, like `options`.
        delete_source: Delete shards as they are used also in `folder`.
        progress: Told bytes downloaded and bytes converted, as two steps, from several threads.
        **options: See `ConvertOptions`.

    Returns:
        The files written; the first is the one to load.

    Raises:
        GptOssError: See `open_checkpoint`, `HubCheckpoint.iter_shards` and `convert_checkpoint`.
    """
    is_ours = folder is None
    beside = target.with_name(f"{target.name}.download")
    # The converter takes the model's name from the folder's.
    folder = folder or beside / source.partition("@")[0].rpartition("/")[2]
    with open_checkpoint(source, folder, original=original) as checkpoint:
        checkpoint.fetch_small_files(progress=progress)
        if original and options.get("tokenizer") is None:
            options["tokenizer"] = folder
        delete_source = delete_source or is_ours
        arrivals = _shards(checkpoint, folder, target, delete_source, progress)
        with contextlib.closing(arrivals):
            written = convert_checkpoint(
                folder, target, **options, n_workers=n_workers, delete_source=delete_source,
                progress=progress, arrivals=arrivals,
            )  # fmt: skip
    if is_ours:
        shutil.rmtree(beside)
    return written


def _shards(
    checkpoint: HubCheckpoint, folder: Path, target: Path, delete_source: bool, progress: Progress
) -> Generator[Path, None, None]:
    """Fetch those shards that the conversion still needs."""
    sizes = checkpoint.shard_sizes()
    # The GGUF is about as large as all shards. Those that are deleted make room for it, but not
    # those on their way or in use.
    n_extra_bytes = (N_PARALLEL + 1) * max(sizes) if delete_source else sum(sizes)
    return checkpoint.iter_shards(
        skip={Path(name).name for name in finished_shards(folder, target)},
        n_parallel=N_PARALLEL,
        extra_bytes=n_extra_bytes,
        progress=progress,
    )
