"""Where the files of a checkpoint lie: in Hugging Face's layout or in OpenAI's `original/`.

A checkpoint may come from anyone, so no file of it is followed out of its folder.
"""

from pathlib import Path, PurePath

from gptoss_local.errors import ConvertError

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
ORIGINAL_NAME = "original"


def find_weights(folder: Path) -> Path:
    """Return the folder of the weights: `folder`, or `folder/original` if only that has any.

    Before they are downloaded, their config.json tells.

    Raises:
        ConvertError: There is no such folder.
    """
    if not folder.is_dir():
        raise ConvertError(f"There is no folder {folder}.")
    for names in ((SINGLE_NAME, INDEX_NAME), (CONFIG_NAME,)):
        for place in (folder, folder / ORIGINAL_NAME):
            if any((place / name).is_file() for name in names):
                return place
    return folder


def check_shard_name(folder: Path, name: str) -> None:
    """Refuse what an index names as a shard unless it is the plain name of a safetensors file.

    Raises:
        ConvertError: The name could lead out of the folder, or to another kind of file.
    """
    is_plain = name.isprintable() and name.isascii() and not set(name) & set('/\\:*?"<>|')
    if not is_plain or PurePath(name).suffix != ".safetensors":
        raise ConvertError(
            f"{folder / INDEX_NAME} names the shard {name!r}, which is not the name of a "
            "safetensors file."
        )


def check_link(path: Path) -> None:
    """Refuse a file that is a link out of its folder, unless into the cache of huggingface_hub.

    That cache keeps `snapshots/REVISION/FILE` as a link to `blobs/HASH` beside `snapshots`.

    Raises:
        ConvertError: It leads elsewhere.
    """
    folder, file = path.parent.resolve(), path.resolve()
    allowed = [folder, *(p.parent / "blobs" for p in folder.parents if p.name == "snapshots")]
    if file.parent not in allowed:
        raise ConvertError(
            f"{path} is a link that leaves its folder, to {file}.",
            hint="Copy the file into the folder if it belongs to the checkpoint.",
        )
