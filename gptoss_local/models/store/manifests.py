"""Models that are more than a file of their name: a manifest that says where their weights are.

`mine:7b` with a system message is `mine%3A7b.json`, and its weights are a hard link in `weights/`
of the models folder; so are those of a model in several files. The manifest is renamed into place
after its weights, and removed before them, so a model is whole or is not there. A model that is
used where it lies has a manifest with the path of its file.
"""

import contextlib
import errno
import functools
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.errors import ModelLoadError, NewerModelError, UsageError, newer_file
from gptoss_local.formats.gguf_file import split_files
from gptoss_local.models.names import MANIFEST_SUFFIX
from gptoss_local.settings import Settings
from gptoss_local.validation import in_words

_VERSION = 1
_UNUSED_S = 24 * 3600  # weights whose manifest has not come, as when a process died between the two


class ModelDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a request to a model that does not say otherwise.

    Attributes:
        parent: Name of the model that it was made of.
        parameters: Options of Ollama's requests, by their names there.
        messages: The beginning of every conversation, as Ollama's API spells messages.
    """

    parent: str = ""
    system: str = ""
    parameters: dict[str, Any] = {}
    messages: tuple[dict[str, Any], ...] = ()
    license: tuple[str, ...] = ()

    @property
    def n_ctx(self) -> int | None:
        """Tokens of context, if the options say so. Raises UsageError if that is not a number."""
        try:
            n_ctx = msgspec.convert(self.parameters.get("num_ctx"), int | None, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(
                "the model's num_ctx is not a number", hint="Create it again."
            ) from error
        return n_ctx if n_ctx and n_ctx > 0 else None

    @property
    def are_none(self) -> bool:
        """Return whether a file and a name are all that there is of the model."""
        return not (self.system or self.parameters or self.messages or self.license)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of the weights, and what else the name carries.

    Attributes:
        version: Counts up when earlier versions of gptoss would misread the file.
        weights: Name of a file in the weights folder, the first one of several.
        file: Absolute path of a file elsewhere, which is not ours; then `weights` is empty.
    """

    version: int = _VERSION
    weights: str = ""
    file: str = ""
    defaults: ModelDefaults = ModelDefaults()

    def path(self, settings: Settings) -> Path:
        """Return the file to load."""
        return Path(self.file) if self.file else weights_folder(settings) / self.weights


class _Version(msgspec.Struct, frozen=True):
    """The field of every version of a manifest; a file without it is of the first."""

    version: int = 1


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        OSError: there is none.
        NewerModelError: a later version of gptoss wrote it.
        ModelLoadError: it is not what we write.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
        raise FileNotFoundError(errno.ENOENT, "no file", str(path))
    return _read(path, found.st_mtime_ns, found.st_ino)


@functools.lru_cache(256)
def _read(path: Path, _mtime_ns: int, _inode: int) -> Manifest:
    """PERF: every request lists the models; parsing is most of the work."""
    try:
        data = path.read_bytes()
        if (version := msgspec.json.decode(data, type=_Version).version) > _VERSION:
            raise newer_file(NewerModelError, path, version, _VERSION)
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = in_words(error) if isinstance(error, msgspec.DecodeError) else error
        raise ModelLoadError(f"{path} is broken: {why}", hint="Create the model again.") from error
    if manifest.weights != Path(manifest.weights).name:
        raise ModelLoadError(f"{path} names weights outside their folder")
    is_spelled = "\0" not in manifest.weights + manifest.file
    if not is_spelled or bool(manifest.weights) == Path(manifest.file).is_absolute():
        raise ModelLoadError(f"{path} does not say where its weights are")
    return manifest


def newer_manifests(settings: Settings) -> dict[Path, NewerModelError]:
    """Return the manifests of later versions of gptoss, and what to say of each."""
    found = {}
    for path in settings.models_dir.glob(f"*{MANIFEST_SUFFIX}"):
        try:
            read_manifest(path)
        except NewerModelError as error:
            found[path] = error
        except (OSError, ModelLoadError):
            pass
    return found


def weights_folder(settings: Settings) -> Path:
    return settings.models_dir / "weights"


def place_weights(sources: Sequence[Path], settings: Settings) -> Path:
    """Link or copy the files of a model under new names, and return the first of these."""
    folder = weights_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{int(time.time())}-{secrets.token_hex(8)}"
    n = len(sources)
    parts = [f"-{i:05d}-of-{n:05d}" for i in range(1, n + 1)] if n > 1 else [""]
    paths = [folder / f"{stem}{part}.gguf" for part in parts]
    try:
        for source, path in zip(sources, paths, strict=True):
            link_or_copy(source, path)
    except BaseException:
        remove_files(paths)
        raise
    return paths[0]


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it; a copy is on the disk when this returns."""
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
        with target.open("rb+") as copy:
            os.fsync(copy.fileno())


def remove_files(paths: Iterable[Path]) -> None:
    """Remove what can be removed; a file in use on Windows is left to the next change."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def unnamed_weights(settings: Settings, older_than_s: float) -> list[Path]:
    """Return the weights that no manifest names, unless a manifest for them may yet come.

    What a manifest of a later version names is not known, so then all are kept.
    """
    if newer_manifests(settings):
        return []
    named = set(_named_weights(settings))
    found = []
    for path in weights_folder(settings).glob("*.gguf"):
        with contextlib.suppress(OSError, ValueError):  # another process may remove it
            # A copy is fresh while it grows; a link is as old as the file that it shares.
            begun_s = max(int(path.name.partition("-")[0]), path.stat().st_ctime)
            if path.name not in named and time.time() - begun_s > older_than_s:
                found.append(path)
    return found


def remove_unnamed_weights(settings: Settings, older_than_s: float = _UNUSED_S) -> None:
    """Remove weights that processes left that died between them and their manifest."""
    remove_files(unnamed_weights(settings, older_than_s))


def _named_weights(settings: Settings) -> Iterator[str]:
    for path in settings.models_dir.glob(f"*{MANIFEST_SUFFIX}"):
        with contextlib.suppress(OSError, ModelLoadError):
            manifest = read_manifest(path)
            if manifest.weights:
                yield from (part.name for part in split_files(manifest.path(settings)))
