"""Finds the files of a checkpoint, in Hugging Face's layout or in OpenAI's `original/`.

A checkpoint may come from anyone, so no file of it is followed out of its folder.
"""

import re
from collections.abc import Iterable
from pathlib import Path, PurePath

from convert.foreign import ADAPTER_NAME, what_it_is
from gptoss_local.base.errors import ConvertError

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
ORIGINAL_NAME = "original"

_PART = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")


def find_weights(folder: Path) -> Path:
    """Return the folder of the weights: `folder`, or `folder/original` if only that has any.

    Before the weights are downloaded, the place of their config.json decides.
    """
    if not folder.is_dir():
        raise ConvertError(f"There is no folder {folder}.")
    places = (folder, folder / ORIGINAL_NAME)
    for place in places:
        if any((place / name).is_file() for name in (SINGLE_NAME, INDEX_NAME)):
            return place
    for place in places:
        if _model_files(place):
            return place
    for place in places:
        if (place / CONFIG_NAME).is_file():
            return place
    return folder


def unindexed_files(folder: Path) -> list[Path]:
    """Find the safetensors files of a folder without an index: one, or all parts of one model."""
    names = _model_files(folder)
    if not names:
        error = what_it_is((path.name for path in folder.iterdir()), str(folder))
        raise error or ConvertError(
            f"{folder} holds neither {SINGLE_NAME} nor {INDEX_NAME}.",
            hint="Name the folder of a download from Hugging Face, the one with config.json in "
            "it, or its folder original.",
        )
    return [folder / name for name in complete_parts(names, str(folder))]


def complete_parts(names: Iterable[str], where: str) -> list[str]:
    names = sorted(names)
    parts = [match for name in names if (match := _PART.fullmatch(name))]
    if len(names) == 1 and not parts:
        return names
    kinds = {(match[1], int(match[3])) for match in parts}
    if len(parts) != len(names) or len(kinds) != 1:
        raise ConvertError(
            f"{where} holds {len(names)} safetensors files and no {INDEX_NAME}, so it is not "
            f"clear which of them belong to the model: {', '.join(names[:3])}, ...",
            hint="Download the index as well, or keep only one model's files in the folder.",
        )
    ((stem, n),) = kinds
    held = {int(match[2]) for match in parts}
    missing = next((i for i in range(1, n + 1) if i not in held), None)  # `n` may be any number
    if missing is not None:
        width = len(parts[0][2])
        name = f"{stem}-{missing:0{width}d}-of-{parts[0][3]}.safetensors"
        raise ConvertError(f"The shard {name} is missing in {where}.", hint="Finish the download.")
    return names


def is_weights(name: str) -> bool:
    """Return whether a file may hold a model's weights, by its name: not an adapter's."""
    return name.endswith(".safetensors") and not name.startswith(("adapter", "."))


def _model_files(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    names = [path.name for path in folder.iterdir() if is_weights(path.name)]
    # A checkpoint of a training run may hold an adapter alone, under any name.
    is_adapter = (folder / ADAPTER_NAME).is_file() and not (folder / CONFIG_NAME).is_file()
    return [] if is_adapter else names


def check_shard_name(folder: Path, name: str) -> None:
    """Refuse a name that could lead out of the folder, or to another kind of file."""
    is_plain = name.isprintable() and name.isascii() and not set(name) & set('/\\:*?"<>|')
    if not is_plain or PurePath(name).suffix != ".safetensors":
        raise ConvertError(
            f"{folder / INDEX_NAME} names the shard {name!r}, which is not the name of a "
            "safetensors file."
        )


def check_link(path: Path) -> None:
    """Refuse a file that is a link out of its folder, unless into the cache of huggingface_hub.

    That cache keeps `snapshots/REVISION/FILE` as a link to `blobs/HASH` next to `snapshots`.
    """
    folder, file = path.parent.resolve(), path.resolve()
    allowed = [folder, *(p.parent / "blobs" for p in folder.parents if p.name == "snapshots")]
    if file.parent not in allowed:
        raise ConvertError(
            f"{path} is a link that leaves its folder, to {file}.",
            hint="Copy the file into the folder if it belongs to the checkpoint.",
        )
