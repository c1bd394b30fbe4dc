"""Joins hub and converter: a repository becomes a GGUF while its shards arrive."""

import contextlib
import shutil
from pathlib import Path
from typing import Unpack

from convert import ConvertOptions, convert_checkpoint, finished_shards
from gptoss_local.hub import open_checkpoint
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
        ModelNotFoundError, DownloadError: See `HubCheckpoint.iter_shards`.
        ConvertError: See `convert_checkpoint`.
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
        sizes = checkpoint.shard_sizes()
        # The GGUF is about as large as its source. Shards that are deleted make room for it, all
        # but those on the way and the one in use.
        n_extra = (N_PARALLEL + 1) * max(sizes) if delete_source else sum(sizes)
        arrivals = checkpoint.iter_shards(
            skip={Path(name).name for name in finished_shards(folder, target)},
            n_parallel=N_PARALLEL,
            extra_bytes=n_extra,
            progress=progress,
        )
        with contextlib.closing(arrivals):
            written = convert_checkpoint(
                folder,
                target,
                **options,
                n_workers=n_workers,
                delete_source=delete_source,
                progress=progress,
                arrivals=arrivals,
            )
    if is_ours:
        shutil.rmtree(beside)
    return written
