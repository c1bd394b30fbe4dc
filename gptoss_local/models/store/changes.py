"""Changes of the store: each is whole or has not happened, also if the process dies."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gptoss_local.base.errors import ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.base.formats.gguf_file import split_files
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import replace
from gptoss_local.models.catalog import CatalogModel, canonical_name, known_model
from gptoss_local.models.names import name_for
from gptoss_local.models.store.blobs import blob_of, disk_errors, remove_unused
from gptoss_local.models.store.checks import check_adapter, check_new, check_usable
from gptoss_local.models.store.manifests import (
    Manifest,
    ModelDefaults,
    changing,
    link_or_copy,
    named_weights,
    placed_weights,
    read_manifest,
    read_manifests,
    remove_files,
    unreadable_manifests,
)
from gptoss_local.models.store.models import (
    ModelEntry,
    catalog_defaults,
    entry_of_file,
    file_for,
    find_model,
    manifest_file,
)


def add_model(
    name: str,
    source: Path,
    settings: Settings,
    defaults: ModelDefaults | None = None,
    *,
    in_place: bool = False,
    adapter: Path | None = None,
) -> None:
    """Give a GGUF file (the first if split) a name and defaults; a former model of it loses it.

    `in_place` refers to the file where it lies, as it is not ours; an adapter, a LoRA of the file,
    is linked or copied. Raises UsageError for a bad name or file.
    """
    target, manifest = file_for(name, settings), manifest_file(name, settings)
    error = unreadable_manifests(settings).get(manifest)
    if error and manifest.is_dir():
        raise error
    check_new(source)
    if adapter:
        check_adapter(adapter, source)
    parts = split_files(source)
    known = known_model(canonical_name(name))
    if defaults is None or defaults.are_none or defaults == catalog_defaults(known):
        defaults = ModelDefaults(parent=defaults.parent if defaults and adapter else "")
    elif known:
        raise _of_catalogue(known, "defaults")
    if adapter and known:
        raise _of_catalogue(known, "an adapter")
    if defaults.are_none and len(parts) == 1 and not in_place and not adapter:
        with _made(target, lambda part: link_or_copy(source, part)) as part, changing(settings):
            replace(part, target)
            _remove_manifest(manifest, settings)
        return
    if known and defaults.are_none:
        defaults = catalog_defaults(known)
    with contextlib.ExitStack() as stack:
        made = Manifest(file=os.path.abspath(source), defaults=defaults)
        with disk_errors():
            if not in_place:
                weights = stack.enter_context(placed_weights(parts, settings))
                made = msgspec.structs.replace(made, file="", weights=weights)
            if adapter:
                held = stack.enter_context(placed_weights([adapter], settings))
                made = msgspec.structs.replace(made, adapter=held)
        data = msgspec.json.encode(made)
        part = stack.enter_context(_made(manifest, lambda part: _write_synced(part, data)))
        stack.enter_context(changing(settings))
        old = _weights_of(manifest)
        replace(part, manifest)  # weights came first: from now on the model is there
        _remove_lost(old, settings)
        target.unlink(missing_ok=True)


def _of_catalogue(known: CatalogModel, what: str) -> UsageError:
    return UsageError(
        f"{known.name} is a model of the catalogue and cannot have {what}",
        hint="Choose another name.",
    )


def check_deletable(name: str, settings: Settings) -> None:
    """Raise UsageError if the name is invalid, embedded or in models.toml; ModelNotFoundError."""
    try:
        find_model(name, settings)
    except (ModelNotFoundError, ModelLoadError):
        places = (file_for(name, settings), manifest_file(name, settings))
        if not any(
            os.path.lexists(place) and not place.is_dir() for place in places
        ):  # a name may outlive its file
            raise
    file_for(name, settings)


def delete_model(name: str, settings: Settings) -> None:
    check_deletable(name, settings)
    target, manifest = file_for(name, settings), manifest_file(name, settings)
    files = [*split_files(target), *_weights_of(manifest)]
    blobs = {blob for file in files if (blob := blob_of(file, settings))}
    with disk_errors(), changing(settings):
        target.unlink(missing_ok=True)  # first: a manifest, if any, hides it anyway
        _remove_manifest(manifest, settings)
    remove_files(part for part in split_files(target) if part != target)
    for blob in blobs:
        with contextlib.suppress(OSError):
            if blob.stat().st_nlink == 1:
                blob.unlink()
    remove_unused(settings)


def adopt_file(file: Path, settings: Settings, name: str = "") -> ModelEntry:
    """Make a model of a file (any part) where it lies; UsageError if another has the name."""
    file = split_files(file)[0]
    check_new(file)
    if not name:
        name = name_for(file)
    try:
        entry = find_model(name, settings)
    except ModelNotFoundError:
        add_model(name, file, settings, in_place=True)
        return find_model(name, settings)
    is_same = entry.path is not None and entry.path.samefile(file)
    is_plain = entry.defaults.are_none or known_model(entry.name)
    if not (is_same and is_plain) or entry.adapter:
        raise UsageError(
            f"there is another model '{entry.name}' already: {entry.path or 'embedded'}",
            hint="Rename the file, or give it a name: gptoss import FILE.gguf NAME",
        )
    return entry


def look_at_file(file: Path, settings: Settings) -> ModelEntry:
    """Return the model that a file (any part) is, or an entry named by its path; write nothing."""
    file = split_files(file)[0]
    check_usable(file)
    with contextlib.suppress(ModelNotFoundError, ModelLoadError):
        entry = find_model(name_for(file), settings)
        if entry.path is not None and entry.path.samefile(file) and not entry.adapter:
            return entry
    return entry_of_file(file)


def _remove_manifest(manifest: Path, settings: Settings) -> None:
    old = _weights_of(manifest)
    manifest.unlink(missing_ok=True)
    _remove_lost(old, settings)


def _remove_lost(weights: list[Path], settings: Settings) -> None:
    manifests, unreadable = read_manifests(settings)
    if not unreadable:  # else one of those may need them; `gptoss gc` removes them later
        named = named_weights(manifests)
        remove_files(part for part in weights if part.name not in named)


def _weights_of(manifest: Path) -> list[Path]:
    try:
        return read_manifest(manifest).own_files(manifest)
    except (OSError, ModelLoadError):  # there is none, or it is broken and will be replaced
        return []


def _write_synced(path: Path, data: bytes) -> None:
    # A system message may be private.
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _made(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    part = target.with_name(f"{target.stem}.{secrets.token_hex(4)}.part")
    with disk_errors():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            make(part)
            yield part
        finally:
            # A rename of one link onto another of the same file does nothing and leaves both.
            part.unlink(missing_ok=True)
