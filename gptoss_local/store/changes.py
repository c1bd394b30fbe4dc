"""Changes of the store: each is whole or has not happened, also if the process dies.

A name is a hard link to its file, so copies cost nothing, and a model stays as long as one of its
names does. One with defaults is a manifest that names such a link. Where the file system has no
hard links, bytes are copied.
"""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from gptoss_local.catalog import canonical_name
from gptoss_local.errors import ModelLoadError, UsageError
from gptoss_local.gguf_file import read_info
from gptoss_local.names import MANIFEST_SUFFIX
from gptoss_local.settings import Settings
from gptoss_local.store.blobs import disk_errors, remove_unused
from gptoss_local.store.manifests import (
    Manifest,
    ModelDefaults,
    place_weights,
    read_manifest,
    remove_unnamed_weights,
    weights_folder,
)
from gptoss_local.store.models import ModelEntry, file_for, find_model, known_model

_ARCHITECTURES = ("gpt-oss", "gptoss")


def add_model(
    name: str, source: Path, settings: Settings, defaults: ModelDefaults | None = None
) -> None:
    """Give a GGUF file a name, and the name defaults; what had the name before loses it.

    Raises:
        UsageError: the name is invalid, or the file is no GGUF of gpt-oss, or a model of the
            catalogue was to get defaults.
        DownloadError: the folder cannot be written.
    """
    target = file_for(name, settings)
    try:
        info = read_info(source)
    except ModelLoadError as error:
        raise UsageError("supplied file was not in GGUF format") from error
    if info.architecture not in _ARCHITECTURES:
        raise UsageError(f"gptoss runs gpt-oss only, and the file is of '{info.architecture}'")
    manifest = _manifest_file(name, settings)
    if defaults is None or defaults.are_none:
        _place(target, lambda part: _link_or_copy(source, part))
        with disk_errors():
            _remove_manifest(manifest, settings)
    else:
        if known_model(canonical_name(name)):
            raise UsageError(
                f"{canonical_name(name)} is a model of the catalogue and cannot have defaults",
                hint="Choose another name.",
            )
        _place_with_defaults(manifest, source, defaults, settings)
        with disk_errors():
            target.unlink(missing_ok=True)


def delete_model(name: str, settings: Settings) -> None:
    """Remove a name, and its file with the last of its names.

    Raises:
        UsageError: the name is invalid, or belongs to the embedded model.
        ModelNotFoundError: there is no such model.
    """
    target = file_for(name, settings)  # refuses the embedded model
    find_model(name, settings)
    with disk_errors():
        target.unlink(missing_ok=True)  # first: with defaults, it only hides behind them
        _remove_manifest(_manifest_file(name, settings), settings)
    remove_unused(settings.models_dir / "blobs")


def adopt_file(file: Path, settings: Settings) -> ModelEntry:
    """Make a model of a file where it lies, under its own name; the file stays untouched.

    Raises:
        UsageError: a model of that name is another file.
        DownloadError: the folder cannot be written.
    """
    name = re.sub(r"[^a-z0-9_.-]", "-", file.stem.lower()).lstrip(".-")[:80] or "model"
    target = file_for(name, settings)
    is_new = not target.exists()
    if _manifest_file(name, settings).exists() or not (is_new or target.samefile(file)):
        raise UsageError(
            f"there is another model '{name}' already: {target}",
            hint="Rename one of the files.",
        )
    if is_new:
        _place(target, lambda part: _refer(file.resolve(), part))
    return find_model(name, settings)


def _manifest_file(name: str, settings: Settings) -> Path:
    return settings.models_dir / (quote(canonical_name(name), safe="") + MANIFEST_SUFFIX)


def _place_with_defaults(
    manifest: Path, source: Path, defaults: ModelDefaults, settings: Settings
) -> None:
    """Weights first, then the manifest that names them: from its rename on the model is there."""
    with disk_errors():
        weights = place_weights(lambda path: _link_or_copy(source, path), settings)
    old = _weights_of(manifest, settings)
    data = msgspec.json.encode(Manifest(weights.name, defaults))
    _place(manifest, lambda part: _write_synced(part, data))
    _forget(old, settings)


def _remove_manifest(manifest: Path, settings: Settings) -> None:
    old = _weights_of(manifest, settings)
    manifest.unlink(missing_ok=True)
    _forget(old, settings)


def _weights_of(manifest: Path, settings: Settings) -> Path | None:
    try:
        return weights_folder(settings) / read_manifest(manifest).weights
    except (OSError, ModelLoadError):  # there is none, or it is broken and will be replaced
        return None


def _forget(weights: Path | None, settings: Settings) -> None:
    """Remove weights that lost their manifest, and others that never got one."""
    if weights is not None:
        with contextlib.suppress(OSError):  # in use on Windows: the next change removes them
            weights.unlink(missing_ok=True)
    remove_unnamed_weights(settings)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _place(target: Path, make: Callable[[Path], None]) -> None:
    """Make a file under a name of its own, then rename it."""
    part = target.with_name(f"{target.stem}.{secrets.token_hex(4)}.part")
    with disk_errors():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            make(part)
            part.replace(target)
        finally:
            # A rename of one link onto another of the same file does nothing and leaves both.
            part.unlink(missing_ok=True)


def _link_or_copy(source: Path, part: Path) -> None:
    try:
        os.link(source.resolve(), part)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, part)


def _refer(source: Path, part: Path) -> None:
    try:
        part.symlink_to(source)
    except OSError:  # Windows wants a privilege for it
        os.link(source, part)
