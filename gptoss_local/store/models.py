"""The models of this machine: the embedded one and the GGUF files of the models folder."""

import difflib
import hashlib
from pathlib import Path

import msgspec

from gptoss_local import nano
from gptoss_local.catalog import CatalogModel, canonical_name, catalog
from gptoss_local.errors import ModelNotFoundError
from gptoss_local.settings import Settings
from gptoss_local.types import Progress

_SUFFIX = ".gguf"


class ModelEntry(msgspec.Struct, frozen=True):
    """A model that can be run now. `path` is None while the embedded one is not built."""

    name: str
    path: Path | None
    embedded: bool = False

    @property
    def digest(self) -> str:
        """64 hex digits that change when the file does.

        Not a content hash: reading 60 GB for a listing would take minutes.
        """
        stat = self.path.stat() if self.path else None
        facts = (self.name, stat and stat.st_size, stat and stat.st_mtime_ns)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def ensure_file(self, settings: Settings, progress: Progress | None = None) -> Path:
        """Return the GGUF, building the embedded model's on first use."""
        if self.path is not None:
            return self.path
        return nano.ensure_gguf(settings.cache_dir, progress=progress)


def list_models(settings: Settings) -> list[ModelEntry]:
    """Every model that can be run, the newest file first, the embedded one last."""
    by_file = {model.file: model.name for model in catalog() if model.file}
    files = [f for f in settings.models_dir.glob(f"*{_SUFFIX}") if f.is_file()]
    files.sort(key=lambda f: f.stat().st_mtime_ns, reverse=True)
    entries = [ModelEntry(by_file.get(f.name, f.stem.lower()), f) for f in files]
    built = nano.cached_gguf(settings.cache_dir)
    return entries + [ModelEntry(m.name, built, embedded=True) for m in catalog() if m.embedded]


def find_model(name: str, settings: Settings) -> ModelEntry:
    """Resolve a name as people type it, or the path of a GGUF file.

    Raises:
        ModelNotFoundError: nothing of that name is on this machine.
    """
    if name.endswith(_SUFFIX) and Path(name).is_file():
        return ModelEntry(name, Path(name).resolve())
    wanted, entries = canonical_name(name), list_models(settings)
    for entry in entries:
        if entry.name == wanted:
            return entry
    raise ModelNotFoundError(f"model '{name}' not found", hint=_advice(wanted, entries, settings))


def _advice(wanted: str, entries: list[ModelEntry], settings: Settings) -> str:
    known: CatalogModel | None = next((m for m in catalog() if m.name == wanted), None)
    if known is not None:
        target = settings.models_dir / known.file
        return f"Convert its checkpoint: gptoss convert CHECKPOINT_DIR {target}"
    names = [entry.name for entry in entries]
    if close := difflib.get_close_matches(wanted, names, n=1):
        return f"Did you mean {close[0]}?"
    return f"Models on this machine: {', '.join(names)}."
