"""The models of this machine: the embedded one, the models folder, files that the user named.

`mine:7b` is `mine%3A7b.gguf` or `mine%3A7b.json`, which wins, so one rename or removal decides
every change. Where both kinds change, other changes and failed lookups wait.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any
from urllib.parse import quote

import msgspec

from gptoss_local.base.errors import ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.base.formats.gguf_file import SPLIT_NAME, split_files
from gptoss_local.base.settings import Settings, user_models_file
from gptoss_local.base.types import Progress
from gptoss_local.models import nano
from gptoss_local.models.catalog import (
    NAME,
    CatalogModel,
    UpstreamAddress,
    canonical_name,
    catalog,
    closest,
    hub_place,
    known_model,
    known_names,
)
from gptoss_local.models.names import MANIFEST_SUFFIX, WEIGHTS_SUFFIX, name_of, weight_files
from gptoss_local.models.store import manifests
from gptoss_local.models.store.manifests import ModelDefaults, changing


class ModelEntry(msgspec.Struct, frozen=True):
    """A model that can be run now, as its file was when it was listed.

    `path` is its first file, None for an upstream model or an embedded one not built. `weights_id`
    is equal for names that share weights, and changes with these. Weights `is_in_place` lie
    elsewhere, and are not ours to delete.
    """

    name: str
    path: Path | None
    embedded: bool = False
    size_bytes: int = 0
    modified_ns: int = 0
    weights_id: str = ""
    manifest: Path | None = None
    is_in_place: bool = False
    defaults: ModelDefaults = ModelDefaults()
    upstream: UpstreamAddress | None = None
    adapter: Path | None = None

    @property
    def files(self) -> list[Path]:
        weights = split_files(self.path) if self.path else []
        return [*weights, *([self.adapter] if self.adapter else [])]

    @property
    def digest(self) -> str:
        """Return 64 hex digits that change when the file does, though not a hash of its content."""
        facts = (self.name, self.size_bytes, self.modified_ns)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def ensure_file(self, settings: Settings, progress: Progress | None = None) -> Path:
        if self.upstream is not None:
            raise UsageError(
                f"{self.name} is computed at {self.upstream.urls[0]} and has no file here",
                hint=f"`gptoss upstream test {self.name}` says how it is.",
            )
        if self.path is not None:
            return self.path
        return nano.ensure_gguf(settings.cache_dir, progress=progress)


def list_models(settings: Settings) -> list[ModelEntry]:
    """Return every runnable model: newest file first, then upstream ones, then the embedded one."""
    names = {file: name_of(file) for file in weight_files(settings.models_dir)}
    names |= {Path(model.file): model.name for model in catalog() if model.is_local}
    entries = [entry for file, name in names.items() if (entry := _entry(name, file))]
    paths = list(settings.models_dir.glob(f"*{MANIFEST_SUFFIX}"))
    named = {entry.name: entry for path in paths if (entry := _entry_of(path))}
    if len(named) < len(paths):
        manifests.unreadable_manifests(settings)  # tells the log
    found = [entry for entry in entries if entry.name not in named] + [*named.values()]
    found.sort(key=lambda entry: entry.modified_ns, reverse=True)
    elsewhere = [_elsewhere(model, model.upstream) for model in catalog() if model.upstream]
    upstream = {entry.name for entry in elsewhere}
    found = [entry for entry in found if entry.name not in upstream] + elsewhere
    built = nano.cached_gguf(settings.cache_dir)
    for model in catalog():
        if model.embedded:
            entry = _entry(model.name, built, embedded=True) if built else None
            found.append(entry or ModelEntry(model.name, None, embedded=True))
    return found


def find_model(name: str, settings: Settings) -> ModelEntry:
    """Resolve a name as people type it, never as a path; ModelLoadError: its manifest is broken."""
    wanted = canonical_name(name)
    for looking in (contextlib.nullcontext(), _unchanged(settings)):  # a change may hide it once
        with looking:
            if entry := _at_its_place(wanted, settings):
                return entry
            entries = list_models(settings)  # a file of the user's may be spelled in other letters
        for entry in entries:
            if entry.name == wanted:
                return entry
    if gone := _promised_file(wanted, settings):
        known = known_model(wanted)
        is_named = known is not None and known.is_local
        how = "change your models.toml" if is_named else f"forget its name: gptoss rm {wanted}"
        if gone.parent.name == "blobs":
            how = f"see what Ollama has now: gptoss import; {how}"
        raise ModelNotFoundError(
            f"model '{name}' is the file {gone}, which is gone", hint=f"Restore it, or {how}"
        )
    raise ModelNotFoundError(f"model '{name}' not found", hint=_advice(name, entries))


def entry_of_file(file: Path) -> ModelEntry:
    path = Path(os.path.abspath(file))
    entry = _entry(str(path), path)
    if entry is None:
        raise ModelLoadError(f"cannot read {path}: a file of it is missing")
    return msgspec.structs.replace(entry, is_in_place=True)


def file_for(name: str, settings: Settings) -> Path:
    """Return where a model's GGUF goes, there or not; UsageError if the name cannot be taken."""
    wanted = canonical_name(name)
    known = known_model(wanted)
    if known is not None and known.embedded:
        raise UsageError(f"{wanted} is part of gptoss and cannot be replaced or deleted")
    if known is not None and known.upstream:
        raise UsageError(
            f"{wanted} is computed elsewhere, as your models.toml says, and has no file here",
            hint=f"`gptoss upstream rm {wanted}` takes it out of models.toml.",
        )
    if known is not None and known.is_local:
        raise UsageError(
            f"{wanted} is {known.file}, as your models.toml says, and is not changed here",
            hint="Take it out of models.toml; the file is yours to delete.",
        )
    if not NAME.fullmatch(wanted):
        raise UsageError(
            f'name "{name}" is invalid',
            hint="Letters, digits, _, - and ., no dot at the end, and no device of Windows (CON).",
        )
    if SPLIT_NAME.search(wanted + WEIGHTS_SUFFIX):
        raise UsageError(
            f'name "{name}" is invalid: it ends like that of one file of several',
            hint="Leave out -00001-of-...",
        )
    for entry in list_models(settings):  # a file of the user's may be spelled in other letters
        if entry.name == wanted and entry.path is not None and entry.manifest is None:
            return entry.path
    return _place(known, wanted, settings)


def catalog_defaults(known: CatalogModel | None) -> ModelDefaults:
    if known is None or known.embedded:
        return ModelDefaults()
    text = (known.license,) if known.license else ()
    return ModelDefaults(parameters=known.sampling.options(), license=text)


def manifest_file(name: str, settings: Settings) -> Path:
    return settings.models_dir / (_stem(canonical_name(name)) + MANIFEST_SUFFIX)


@contextlib.contextmanager
def _unchanged(settings: Settings) -> Iterator[None]:
    """Keep names from changing; without a lock, or if it takes long, look all the same."""
    with contextlib.ExitStack() as stack:
        if settings.models_dir.is_dir():
            with contextlib.suppress(OSError):  # such as a folder that cannot be written
                stack.enter_context(changing(settings, timeout_s=1.0))
        yield


def _at_its_place(name: str, settings: Settings) -> ModelEntry | None:
    """Return a model that has its usual file name. PERF: 20 us; a listing takes that for each."""
    known = known_model(name)
    if known is not None and known.upstream:
        return _elsewhere(known, known.upstream)
    if known is not None and known.embedded:
        built = nano.cached_gguf(settings.cache_dir)
        return _entry(name, built, embedded=True) if built else None
    manifest = settings.models_dir / (_stem(name) + MANIFEST_SUFFIX)
    return _entry_of(manifest) or _entry(name, _place(known, name, settings))


def _place(known: CatalogModel | None, name: str, settings: Settings) -> Path:
    file = known.file if known is not None and known.file else _stem(name) + WEIGHTS_SUFFIX
    return settings.models_dir / file  # an absolute path of the catalogue stays as it is


def _promised_file(name: str, settings: Settings) -> Path | None:
    """Return the file that a model should have and has not; raises if its manifest is broken."""
    known = known_model(name)
    if known is not None and known.is_local:
        return Path(known.file)
    try:
        manifest = manifest_file(name, settings)
        found = manifests.read_manifest(manifest)
        files = [*split_files(found.path(manifest)), *found.own_files(manifest)]
    except (OSError, ValueError):  # no manifest, or no name that a file could have
        path = _place(known, name, settings)
        return Path(os.readlink(path)) if os.path.islink(path) else None
    return next((file for file in files if not file.is_file()), None)


def _stem(name: str) -> str:
    return quote(name, safe="", errors="replace")


def _entry(
    name: str, file: Path, *, embedded: bool = False, adapter: Path | None = None
) -> ModelEntry | None:
    """Read an entry; None if its file is gone, as when another process just removed it."""
    try:
        stats = [part.stat() for part in (*split_files(file), *([adapter] if adapter else []))]
    except OSError:
        return None
    if not all(S_ISREG(part.st_mode) for part in stats):  # a folder; a pipe would be waited for
        return None
    facts = [(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]
    weights_id = hashlib.sha256(repr(facts).encode()).hexdigest()
    known = known_model(name)
    return ModelEntry(
        name,
        file,
        embedded,
        sum(stat.st_size for stat in stats),
        stats[0].st_mtime_ns,
        weights_id,
        is_in_place=(known is not None and known.is_local) or file.is_symlink(),
        defaults=catalog_defaults(known),
        adapter=adapter,
    )


def _elsewhere(model: CatalogModel, upstream: UpstreamAddress) -> ModelEntry:
    try:
        modified_ns = user_models_file().stat().st_mtime_ns
    except OSError:  # just removed
        modified_ns = 0
    facts = repr(("upstream", model.name, upstream))
    return ModelEntry(
        model.name,
        None,
        modified_ns=modified_ns,
        weights_id=hashlib.sha256(facts.encode()).hexdigest(),
        defaults=catalog_defaults(model),
        upstream=upstream,
    )


def _entry_of(path: Path) -> ModelEntry | None:
    """Read an entry; None if a file is not a manifest, or is gone; `find_model` says which."""
    for _ in range(2):  # replaced between two looks, it names other weights
        try:
            manifest, modified_ns = manifests.read_manifest(path), path.stat().st_mtime_ns
        except (OSError, ModelLoadError):
            return None
        adapter = manifest.adapter_path(path)
        if entry := _entry(name_of(path), manifest.path(path), adapter=adapter):
            return msgspec.structs.replace(
                entry,
                manifest=path,
                modified_ns=modified_ns,
                is_in_place=bool(manifest.file),
                defaults=manifest.defaults,
            )
    return None


def _advice(name: str, entries: list[ModelEntry]) -> str:
    wanted = canonical_name(name)
    known = known_model(wanted)
    if known is not None or hub_place(name):
        return f"Fetch it: gptoss pull {known.name if known else name}"
    names = [entry.name for entry in entries]
    if close := closest(wanted, [*names, *known_names()]):
        return f"Did you mean {close}?"
    return f"Models on this machine: {', '.join(names)}."


def parameter_lines(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Return options as `ollama show` does: a line per `stop`, strings in quotes."""
    return [
        (name, json.dumps(value, ensure_ascii=False))
        for name, values in options.items()
        for value in (values if name == "stop" and isinstance(values, list) else [values])
    ]


AS_JSON = "# gptoss: the next value is JSON"
"""Stands before what Ollama's quotes cannot hold; to Ollama it is a comment."""


def render_modelfile(entry: ModelEntry) -> str:
    """Write a model as Ollama's `create -f` reads it. Source: Ollama's docs/modelfile.mdx."""
    defaults = entry.defaults
    lines = ["# gptoss renders harmony itself", f"FROM {defaults.parent or entry.name}"]
    lines += [f"ADAPTER {entry.adapter}"] if entry.adapter else []
    lines += [f"PARAMETER {name} {value}" for name, value in parameter_lines(defaults.parameters)]
    lines += [_value_line("SYSTEM", defaults.system)] if defaults.system else []
    for message in defaults.messages:
        role, content = message.get("role"), message.get("content")
        is_text = isinstance(content, str) and message.keys() == {"role", "content"}
        rest = {key: value for key, value in message.items() if key != "role"}
        lines.append(_value_line(f"MESSAGE {role}", content if is_text else rest))
    lines += [_value_line("LICENSE", text) for text in defaults.license]
    return "\n".join(lines) + "\n"


def _value_line(command: str, value: Any) -> str:
    # Quotes at the end of a line would end it, and to Ollama \r ends a line, too.
    if (
        not isinstance(value, str)
        or "\r" in value
        or any(line.rstrip().endswith('"""') for line in value.split("\n")[:-1])
    ):
        return f"{AS_JSON}\n{command} {json.dumps(value, ensure_ascii=False)}"
    return f'{command} """{value}"""'
