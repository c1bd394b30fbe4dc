"""The models of this machine: the embedded one and the GGUF files of the models folder.

A name and a file are one thing: `mine:7b` is the file `mine%3A7b.gguf`, or, if it carries defaults,
`mine%3A7b.json`, which wins. Models that the catalogue knows have the file names it says. So every
change of the store is decided by one rename or removal, and several processes need no lock.
"""

import contextlib
import hashlib
import re
from pathlib import Path
from urllib.parse import quote

import msgspec

from gptoss_local import nano
from gptoss_local.catalog import CatalogModel, canonical_name, catalog, closest, known_names
from gptoss_local.errors import ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.names import MANIFEST_SUFFIX, WEIGHTS_SUFFIX, name_of
from gptoss_local.settings import Settings
from gptoss_local.store import manifests
from gptoss_local.store.manifests import ModelDefaults
from gptoss_local.types import Progress

# `[host/][namespace/]model[:tag]`, each part of 1 to 80 characters (Ollama's types/model/name.go).
_PART = r"[a-z0-9_][a-z0-9_.-]{0,79}"
_NAME = re.compile(rf"(?:{_PART}/){{0,2}}{_PART}(?::{_PART})?")


class ModelEntry(msgspec.Struct, frozen=True):
    """A model that can be run now, as its file was when it was listed.

    Attributes:
        path: Its weights; None while the embedded model is not built.
        weights_id: Equal for names that share their weights, and another when these change.
        manifest: The file with its defaults, if it has any.
    """

    name: str
    path: Path | None
    embedded: bool = False
    size_bytes: int = 0
    modified_ns: int = 0
    weights_id: str = ""
    manifest: Path | None = None
    defaults: ModelDefaults = ModelDefaults()

    @property
    def digest(self) -> str:
        """64 hex digits that change when the file does.

        Not a content hash: reading 60 GB for a listing would take minutes.
        """
        facts = (self.name, self.size_bytes, self.modified_ns)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def ensure_file(self, settings: Settings, progress: Progress | None = None) -> Path:
        """Return the GGUF, building the embedded model's on first use."""
        if self.path is not None:
            return self.path
        return nano.ensure_gguf(settings.cache_dir, progress=progress)


def list_models(settings: Settings) -> list[ModelEntry]:
    """Every model that can be run, the newest file first, the embedded one last."""
    files = settings.models_dir.glob(f"*{WEIGHTS_SUFFIX}")
    found = [entry for file in files if (entry := _entry(name_of(file), file))]
    for manifest in settings.models_dir.glob(f"*{MANIFEST_SUFFIX}"):
        if entry := _entry_of(manifest, settings):
            found = [other for other in found if other.name != entry.name] + [entry]
    found.sort(key=lambda entry: entry.modified_ns, reverse=True)
    built = nano.cached_gguf(settings.cache_dir)
    for model in catalog():
        if model.embedded:
            entry = _entry(model.name, built, embedded=True) if built else None
            found.append(entry or ModelEntry(model.name, None, embedded=True))
    return found


def find_model(name: str, settings: Settings) -> ModelEntry:
    """Resolve a name as people type it. It is never taken for a path.

    Raises:
        ModelNotFoundError: nothing of that name is on this machine.
        ModelLoadError: its manifest is broken.
    """
    wanted = canonical_name(name)
    if entry := _at_its_place(wanted, settings):
        return entry
    entries = list_models(settings)  # a file of the user's may be spelled in other letters
    for entry in entries:
        if entry.name == wanted:
            return entry
    with contextlib.suppress(OSError):
        manifests.read_manifest(settings.models_dir / (_stem(wanted) + MANIFEST_SUFFIX))
    raise ModelNotFoundError(f"model '{name}' not found", hint=_advice(wanted, entries))


def file_for(name: str, settings: Settings) -> Path:
    """Say where the GGUF of a model without defaults goes, whether it is there or not.

    Raises:
        UsageError: the name is not spelled like one, or belongs to the embedded model.
    """
    wanted = canonical_name(name)
    known = known_model(wanted)
    if known is not None and known.embedded:
        raise UsageError(f"{wanted} is part of gptoss and cannot be replaced or deleted")
    if not _NAME.fullmatch(wanted):
        raise UsageError(f'name "{name}" is invalid')
    for entry in list_models(settings):  # a file of the user's may be spelled in other letters
        if entry.name == wanted and entry.path is not None and entry.manifest is None:
            return entry.path
    return settings.models_dir / (known.file if known else _stem(wanted) + WEIGHTS_SUFFIX)


def known_model(name: str) -> CatalogModel | None:
    """The catalogue's entry of a canonical name."""
    return next((model for model in catalog() if model.name == name), None)


def _at_its_place(name: str, settings: Settings) -> ModelEntry | None:
    """A model whose file is called as we would call it.

    PERF: 20 us, where listing all models takes as long for each; a request asks several times.
    """
    known = known_model(name)
    if known is not None and known.embedded:
        built = nano.cached_gguf(settings.cache_dir)
        return _entry(name, built, embedded=True) if built else None
    stem = _stem(name)
    manifest = settings.models_dir / (stem + MANIFEST_SUFFIX)
    file = settings.models_dir / (known.file if known else stem + WEIGHTS_SUFFIX)
    return _entry_of(manifest, settings) or _entry(name, file)


def _stem(name: str) -> str:
    """The name of a model's file without its suffix; a command line may hold half characters."""
    return quote(name, safe="", errors="replace")


def _entry(name: str, file: Path, *, embedded: bool = False) -> ModelEntry | None:
    """None if there is no such file any more, as when another process removed it just now."""
    try:
        stat = file.stat()
    except OSError:
        return None
    facts = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    weights_id = hashlib.sha256(repr(facts).encode()).hexdigest()
    return ModelEntry(name, file, embedded, stat.st_size, stat.st_mtime_ns, weights_id)


def _entry_of(path: Path, settings: Settings) -> ModelEntry | None:
    """None if a file is no manifest, or is gone with its weights; `find_model` says which."""
    try:
        manifest, modified_ns = manifests.read_manifest(path), path.stat().st_mtime_ns
    except (OSError, ModelLoadError):
        return None
    file = manifests.weights_folder(settings) / manifest.weights
    entry = _entry(name_of(path), file)
    return entry and msgspec.structs.replace(
        entry, manifest=path, modified_ns=modified_ns, defaults=manifest.defaults
    )


def _advice(wanted: str, entries: list[ModelEntry]) -> str:
    known = known_model(wanted)
    if known is not None:
        return f"Fetch it: gptoss pull {known.name}"
    names = [entry.name for entry in entries]
    if close := closest(wanted, [*names, *known_names()]):
        return f"Did you mean {close}?"
    return f"Models on this machine: {', '.join(names)}."
