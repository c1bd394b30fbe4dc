"""Models that are more than a file of their name: a manifest that says where their weights are.

`mine:7b` with a system message is `mine%3A7b.json`; its weights are a hard link in `weights/`. A
manifest is renamed into place after its weights and removed before them, so models are whole.
"""

import contextlib
import errno
import functools
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.base.errors import ModelLoadError, UsageError
from gptoss_local.base.formats.gguf_file import split_files
from gptoss_local.base.lock import hold, is_held, locked
from gptoss_local.base.settings import Settings
from gptoss_local.base.validation import in_words
from gptoss_local.models.names import MANIFEST_SUFFIX, name_of

_WEIGHTS = "weights"
_CHANGE_S = 30.0  # one holds the lock for renames and removals, not while bytes are copied


class ModelDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Default options of requests: `parameters` by Ollama's names, `messages` as in its API."""

    parent: str = ""
    system: str = ""
    parameters: dict[str, Any] = {}
    messages: tuple[dict[str, Any], ...] = ()
    license: tuple[str, ...] = ()

    @property
    def n_ctx(self) -> int | None:
        """Return the tokens of context, if given; raise UsageError for other values."""
        try:
            n_ctx = msgspec.convert(self.parameters.get("num_ctx"), int | None, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(
                "the model's num_ctx is not a number", hint="Create it again."
            ) from error
        return n_ctx if n_ctx and n_ctx > 0 else None

    @property
    def are_none(self) -> bool:
        return not (self.system or self.parameters or self.messages or self.license)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of the weights, and the defaults of the name.

    `weights` (the first of several) and `adapter` are names in the weights folder; `file` instead
    is the absolute path of a file elsewhere, which is not ours.
    """

    weights: str = ""
    file: str = ""
    adapter: str = ""
    defaults: ModelDefaults = ModelDefaults()

    def path(self, manifest: Path) -> Path:
        return Path(self.file) if self.file else manifest.parent / _WEIGHTS / self.weights

    def adapter_path(self, manifest: Path) -> Path | None:
        return manifest.parent / _WEIGHTS / self.adapter if self.adapter else None

    def own_files(self, manifest: Path) -> list[Path]:
        """Return the files that go with the manifest; never a file that lies elsewhere."""
        adapter = self.adapter_path(manifest)
        weights = split_files(self.path(manifest)) if self.weights else []
        return [*weights, *([adapter] if adapter else [])]


@contextlib.contextmanager
def changing(settings: Settings, *, timeout_s: float = _CHANGE_S) -> Iterator[None]:
    """Keep all other changes of names out; not reentrant. OSError: there is no lock to be had.

    A change renames one file of a name and removes the other kind, so a lookup in between might
    find neither, and two changes might remove each other's file.
    """
    with locked(settings.cache_dir / "models.lock", timeout_s=timeout_s, poll_s=0.005):
        yield


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; OSError: there is none; ModelLoadError: it is broken."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
        raise FileNotFoundError(errno.ENOENT, "it is not a file", str(path))
    return _read(path, found.st_mtime_ns, found.st_ino)


@functools.lru_cache(1 << 14)
def _read(path: Path, _mtime_ns: int, _inode: int) -> Manifest:
    """PERF: every request lists the models; parsing is most of the work."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except PermissionError as error:
        raise _unclear(path, f"cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unclear(path, f"is broken: {in_words(error)}") from error
    if any(name != Path(name).name for name in (manifest.weights, manifest.adapter)):
        raise _unclear(path, "names weights outside their folder")
    is_spelled = "\0" not in manifest.weights + manifest.file + manifest.adapter
    if not is_spelled or bool(manifest.weights) == Path(manifest.file).is_absolute():
        raise _unclear(path, "does not say where its weights are")
    return manifest


def _unclear(path: Path, what: str) -> ModelLoadError:
    how = f"Correct or restore it, or give the model up: gptoss rm {name_of(path)}, gptoss gc"
    return ModelLoadError(f"{path} {what}", hint=how)


def read_manifests(settings: Settings) -> tuple[dict[Path, Manifest], dict[Path, ModelLoadError]]:
    """Read all manifests; the errors are of those that do not say which weights they need."""
    manifests: dict[Path, Manifest] = {}
    unreadable: dict[Path, ModelLoadError] = {}
    folder, names = settings.models_dir, list[str]()
    if folder.is_dir():
        names = os.listdir(folder)
    elif os.path.lexists(folder):
        is_link = folder.is_symlink()
        what = f"a link to {os.readlink(folder)}, which is gone" if is_link else "a file"
        unreadable[folder] = ModelLoadError(
            f"the models folder {folder} is {what}",
            hint="Mount its disk, or remove it; GPTOSS_HOME names another place.",
        )
    for path in (settings.models_dir / name for name in sorted(names)):
        if path.suffix != MANIFEST_SUFFIX:
            continue
        try:
            manifest = read_manifest(path)
            gone = next((part for part in manifest.own_files(path) if not part.is_file()), None)
            if gone and read_manifest(path) == manifest:  # nor was it replaced between two looks
                raise _unclear(path, f"names {gone}, which is not there")
            manifests[path] = manifest
        except ModelLoadError as error:
            unreadable[path] = error
        except OSError as error:
            if os.path.lexists(path):  # else another process has just removed it
                unreadable[path] = _unclear(path, f"cannot be read: {error.strerror}")
    for each in unreadable.values():
        _log(each.message, each.hint)
    return manifests, unreadable


def unreadable_manifests(settings: Settings) -> dict[Path, ModelLoadError]:
    """Return manifests that cannot be read; while there is one, nothing unnamed is removed."""
    return read_manifests(settings)[1]


@functools.lru_cache(256)
def _log(message: str, hint: str) -> None:
    import logging

    log = logging.getLogger("gptoss")
    if log.hasHandlers():
        log.warning("%s, so weights and uploads without a name stay. %s", message, hint)


def weights_folder(settings: Settings) -> Path:
    return settings.models_dir / _WEIGHTS


@contextlib.contextmanager
def placed_weights(sources: Sequence[Path], settings: Settings) -> Iterator[str]:
    """Link or copy a model's files under new names, held until the manifest is; yield the first."""
    folder = weights_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{int(time.time())}-{secrets.token_hex(8)}"
    n = len(sources)
    parts = [f"-{i:05d}-of-{n:05d}" for i in range(1, n + 1)] if n > 1 else [""]
    paths = [folder / f"{stem}{part}.gguf" for part in parts]
    with contextlib.ExitStack() as stack:
        try:
            for source, path in zip(sources, paths, strict=True):
                link_or_copy(source, path)
                hold(stack.enter_context(path.open("rb")))  # copying the next may take long
        except BaseException:
            remove_files(paths)
            raise
        yield paths[0].name


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it; a copy is on the disk when this returns."""
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
        with target.open("rb+") as copy:
            os.fsync(copy.fileno())


def remove_files(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def unnamed_weights(settings: Settings, older_than_s: float) -> list[Path]:
    """Return weights that no manifest names; none while a manifest cannot be read."""
    manifests, unreadable = read_manifests(settings)
    named, found = named_weights(manifests), []
    for path in weights_folder(settings).glob("*.gguf") if not unreadable else ():
        with contextlib.suppress(OSError, ValueError):  # another process may remove it
            # A copy is fresh while it grows; a link is as old as the file that it shares.
            begun_s = max(int(path.name.partition("-")[0]), path.stat().st_ctime)
            is_old = time.time() - begun_s > older_than_s
            if path.name not in named and is_old and not is_held(path):
                found.append(path)
    return found


def named_weights(manifests: Mapping[Path, Manifest]) -> set[str]:
    return {part.name for path, manifest in manifests.items() for part in manifest.own_files(path)}
