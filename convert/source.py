"""A checkpoint in a folder, in Hugging Face's layout or in OpenAI's `original/`."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import msgspec

from convert.config import CONFIG_NAME, ModelConfig, is_original, parse_config
from convert.files import DOWNLOAD_HINT, SourceTensor, check_link, read_header, read_json, reading
from convert.foreign import ADAPTER_NAME, what_it_is
from convert.journal import JournalState, Shard
from convert.tensor_names import new_names
from gptoss_local.base.errors import ConvertError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
ORIGINAL_NAME = "original"

_PART = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class Source:
    """A checkpoint; `root` is the folder that the user named, `folder` the one with the weights."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            hint = "Name the folder that this file is in." if root.exists() else ""
            raise ConvertError(f"There is no folder {root}.", hint=hint)
        with reading(root):
            self.root, self.folder = root, _find_weights(root)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return read_json(self.folder / CONFIG_NAME)

    @cached_property
    def config(self) -> ModelConfig:
        return parse_config(self._fields, self.folder / CONFIG_NAME)

    @cached_property
    def index(self) -> dict[str, list[str]]:
        """Read the tensors of each shard, by its file name; empty without an index."""
        path = self.folder / INDEX_NAME
        if not path.is_file():
            return {}
        weight_map = read_json(path, _Index).weight_map
        names = new_names(weight_map, str(path), is_original=is_original(self._fields))
        held: defaultdict[str, list[str]] = defaultdict(list)
        for name, shard in weight_map.items():
            _check_shard_name(path, shard)
            held[shard] += names[name]
        return dict(sorted(held.items()))

    @property
    def own_tokenizer(self) -> Path | None:
        for place in (self.folder, self.root):
            if (place / "tokenizer.json").is_file():
                check_link(place / "tokenizer.json")
                return place
        return None

    def shard_paths(self) -> list[Path]:
        """Name the files with the weights, of which those in an index may be missing."""
        if (self.folder / SINGLE_NAME).is_file():
            return [self.folder / SINGLE_NAME]
        names = list(self.index) or complete_parts(_model_files(self.folder), str(self.folder))
        if not names:
            error = what_it_is((path.name for path in self.folder.iterdir()), str(self.folder))
            raise error or ConvertError(
                f"{self.folder} holds neither {SINGLE_NAME} nor {INDEX_NAME}.",
                hint="Name the folder of a download from Hugging Face, the one with config.json in "
                "it, or its folder original.",
            )
        return [self.folder / name for name in names]

    def shards(self, earlier: JournalState) -> list[Shard]:
        """Read the headers of a complete folder, and take deleted shards from a journal."""
        try:
            return _distinct([self._read(path) for path in self.shard_paths()])
        except ConvertError:
            gone, finished = earlier.gone_shards(), earlier.finished_shards()
            if not gone & finished:
                raise
            if missing := gone - finished:
                raise ConvertError(
                    f"The shard {self.root / min(missing)} is missing.",
                    hint="Finish the download first.",
                ) from None
            return [
                shard if name in gone else self._read(self.root / name)
                for name, shard in sorted(earlier.shards(self.root).items())
            ]

    def arriving_shards(
        self, arrivals: Iterable[Path], earlier: JournalState
    ) -> tuple[Collection[str], Iterator[Shard]]:
        """Return all tensors' names, and shards as they arrive; without an index, wait first."""
        if self.index:
            names = [name for held in self.index.values() for name in held]
            expected = (path.name for path in arrivals if path.name in self.index)
            return names, (self._read(self.folder / name) for name in expected)
        finished = earlier.finished_shards()
        known = [s for name, s in earlier.shards(self.root).items() if name in finished]
        arrived = [self._read(self.folder / path.name) for path in arrivals]
        if not (known or arrived):
            raise ConvertError(
                f"{self.folder / SINGLE_NAME} never arrived.", hint="Finish the download first."
            )
        new = [shard for shard in arrived if shard.name not in {each.name for each in known}]
        shards = _distinct([*known, *new])
        complete_parts((Path(shard.name).name for shard in shards), str(self.folder))
        return [name for shard in shards for name in shard.tensors], iter(arrived)

    def _read(self, path: Path) -> Shard:
        """Read the header of a shard, which must hold what the index, if any, places there."""
        if not path.is_file():
            raise ConvertError(f"The shard {path} is missing.", hint="Finish the download first.")
        with reading(path):
            held, stat = read_header(path), path.stat()
        names = new_names(held, str(path), is_original=is_original(self._fields))
        tensors: dict[str, SourceTensor] = {}
        for name, tensor in held.items():
            is_cut = len(names[name]) > 1
            parts = _cut_qkv(name, tensor, self.config) if is_cut else [tensor] * len(names[name])
            tensors |= zip(names[name], parts, strict=True)
        # A tensor that the index does not place here may also lie, with other values, elsewhere.
        expected = set(self.index.get(path.name, tensors))
        for name in sorted(expected ^ tensors.keys()):
            says = "does not hold" if name in expected else "holds"
            raise ConvertError(
                f"{path} {says} {name}, though {INDEX_NAME} says otherwise.", hint=DOWNLOAD_HINT
            )
        name = path.relative_to(self.root).as_posix()
        return Shard(name, stat.st_size, stat.st_mtime_ns, tensors)


def _find_weights(folder: Path) -> Path:
    """Find the weights; before they are downloaded, the place of their config.json decides."""
    places = (folder, folder / ORIGINAL_NAME)
    usual = [p for p in places if (p / SINGLE_NAME).is_file() or (p / INDEX_NAME).is_file()]
    others = [place for place in places if _model_files(place)]
    empty = [place for place in places if (place / CONFIG_NAME).is_file()]
    return [*usual, *others, *empty, folder][0]


def _model_files(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    names = [path.name for path in folder.iterdir() if is_weights(path.name)]
    # A checkpoint of a training run may hold an adapter alone, under any name.
    is_adapter = (folder / ADAPTER_NAME).is_file() and not (folder / CONFIG_NAME).is_file()
    return [] if is_adapter else names


def is_weights(name: str) -> bool:
    """Return whether a file may hold a model's weights, by its name: not an adapter's."""
    return name.endswith(".safetensors") and not name.startswith(("adapter", "."))


def complete_parts(names: Iterable[str], where: str) -> list[str]:
    """Sort the files of a model without an index: one, or all parts of one."""
    names = sorted(names)
    parts = [match for name in names if (match := _PART.fullmatch(name))]
    if len(names) < 2 and not parts:
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


def _check_shard_name(index: Path, name: str) -> None:
    """Refuse a name that could lead out of the folder, or to another kind of file."""
    is_plain = name.isprintable() and name.isascii() and not set(name) & set('/\\:*?"<>|')
    if not is_plain or PurePath(name).suffix != ".safetensors":
        raise ConvertError(
            f"{index} names the shard {name!r}, which is not the name of a safetensors file."
        )


def _distinct(shards: list[Shard]) -> list[Shard]:
    places: dict[str, Path] = {}
    for shard in shards:
        for name, tensor in shard.tensors.items():
            if name in places:
                raise ConvertError(
                    f"{tensor.path} holds {name}, which is in {places[name]}, too.",
                    hint=DOWNLOAD_HINT,
                )
            places[name] = tensor.path
    return shards


def _cut_qkv(name: str, tensor: SourceTensor, config: ModelConfig) -> list[SourceTensor]:
    rows = [config.n_q, config.n_kv, config.n_kv]
    if tensor.dtype != "BF16" or not tensor.shape or tensor.shape[0] != sum(rows):
        raise ConvertError(
            f"{name} in {tensor.path} is {tensor.dtype} {list(tensor.shape)} where config.json "
            f"calls for BF16 with {sum(rows)} rows.",
            hint="Check that config.json and the weights are of the same model.",
        )
    n_row_bytes = tensor.n_bytes // sum(rows)
    parts, offset = [], tensor.offset
    for n_rows in rows:
        n_bytes = n_rows * n_row_bytes
        shape = (n_rows, *tensor.shape[1:])
        parts.append(msgspec.structs.replace(tensor, shape=shape, offset=offset, n_bytes=n_bytes))
        offset += n_bytes
    return parts
