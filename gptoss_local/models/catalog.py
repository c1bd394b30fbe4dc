"""The models we know by name: `models.toml`, and the user's own next to `config.toml`.

A user's entry overrides the keys of ours with the same name, or adds a model.
"""

import functools
import os
import re
import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import parse_size
from gptoss_local.base.settings import user_models_file
from gptoss_local.base.validation import in_words

_AS_IN = 'As in: [[model]] name = "mine" and checkpoint = { repo = "OWNER/NAME" }.'
_OURS = Path(__file__).parents[2] / "models.toml"

# `[host/][namespace/]model[:tag]`, each part of 1 to 80 characters (Ollama's types/model/name.go),
# and one that a file may have on Windows: no device, also with a suffix, and no dot at its end.
DEVICE = r"(?:con|prn|aux|nul|com\d|lpt\d)(?![a-z0-9_-])"
_PART = rf"(?!{DEVICE})[a-z0-9_](?:[a-z0-9_.-]{{0,78}}[a-z0-9_-])?"
NAME = re.compile(rf"(?:{_PART}/){{0,2}}{_PART}(?::{_PART})?")

_HUB = re.compile(r"^(?:hf://|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)", re.IGNORECASE)
_PLACE = re.compile(r"(\w[\w.-]*/\w[\w.-]*(?:@\w[\w.-]*)?)(?::(\w[\w.-]*))?", re.ASCII)

_Size = Annotated[int, msgspec.Meta(ge=0)]
_Repo = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+/[\w.-]+(@\S+)?$")]
_Url = Annotated[str, msgspec.Meta(pattern=r"^https?://[^/\s?#]+(/[^\s?#]*)?$")]
_File = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.gguf$")]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Checkpoint(_Entry, frozen=True):
    """Safetensors on the hub, to be converted; `repo` is `OWNER/NAME[@REVISION]`."""

    repo: _Repo
    size_bytes: _Size = 0


class PublishedGGUF(_Entry, frozen=True):
    """A GGUF on the hub; `files` are the paths of its parts, in order."""

    repo: _Repo
    files: Annotated[tuple[_File, ...], msgspec.Meta(min_length=1)]
    size_bytes: _Size = 0


class Needs(_Entry, frozen=True):
    vram: str = "0"
    ram: str = "0"


class Sampling(_Entry, frozen=True, omit_defaults=True):
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, msgspec.Meta(gt=0)] | None = None
    num_ctx: Annotated[int, msgspec.Meta(ge=1)] | None = None
    num_predict: int | None = None
    seed: int | None = None
    stop: list[str] | None = None

    def options(self) -> dict[str, Any]:
        said: dict[str, Any] = msgspec.to_builtins(self)
        return said


UpstreamKind = Literal["gptoss", "vllm", "nim", "sglang", "tensorrt-llm", "dynamo", "llama-server"]


class UpstreamAddress(_Entry, frozen=True, kw_only=True):
    """Engines elsewhere that compute a model; see `gptoss_local.runner.upstream`.

    `urls` are of equal engines, without `/v1`; `key_env` is the environment variable with the key;
    `n_ctx` 0 is the engine's, or else gpt-oss's own; `first_token_s` includes queue and prefill;
    vLLM refuses priorities unless it is configured for them.
    """

    kind: UpstreamKind
    urls: Annotated[tuple[_Url, ...], msgspec.Meta(min_length=1)]
    model: str = ""
    key_env: Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")] = ""
    n_ctx: _Size = 0
    first_token_s: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    stall_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    has_priority: bool = False


class CatalogModel(_Entry, frozen=True, kw_only=True):
    """One entry; `file` lies in the models folder, or is the absolute path of a GGUF elsewhere.

    A special model is not suggested to start with. `layers` of `experts` are for a plan before the
    file is here; 0: unknown.
    """

    name: str
    aliases: tuple[str, ...] = ()
    title: str = ""
    license: str = ""
    file: str = ""
    embedded: bool = False
    is_special: bool = False
    layers: int = 0
    experts: int = 0
    needs: Needs = Needs()
    sampling: Sampling = Sampling()
    checkpoint: Checkpoint | None = None
    gguf: PublishedGGUF | None = None
    upstream: UpstreamAddress | None = None

    @property
    def is_local(self) -> bool:
        return PurePath(self.file).is_absolute()

    @property
    def download_bytes(self) -> int:
        source = self.checkpoint or self.gguf
        return source.size_bytes if source else 0

    @property
    def repo(self) -> str:
        source = self.checkpoint or self.gguf
        return source.repo if source else ""


class _ModelsFile(_Entry, frozen=True):
    model: list[dict[str, Any]] = []


def catalog() -> tuple[CatalogModel, ...]:
    """Return all entries, the embedded one first; UsageError says where models.toml is wrong."""
    file = user_models_file()
    try:
        changed_ns = file.stat().st_mtime_ns
    except OSError:
        changed_ns = 0
    return _catalog(file, changed_ns)


def check_models_file(path: Path) -> None:
    _catalog(path, path.stat().st_mtime_ns)


def canonical_name(name: str) -> str:
    """Resolve case, aliases, `:latest`, and the hosts of the hub and of Ollama."""
    wanted = name.strip().lower().removesuffix(":latest")
    wanted = wanted.removeprefix("registry.ollama.ai/").removeprefix("library/")
    wanted = _HUB.sub("", wanted)
    if (place := hub_place(wanted)) and not place[1]:
        wanted = wanted.replace("@", ":")  # a revision is the tag of its model
    for model in catalog():
        if wanted in (model.name, *model.aliases):
            return model.name
    return wanted


def hub_place(name: str) -> tuple[str, str] | None:
    """Return the repository (with `@REVISION`) and the file of `OWNER/NAME[:FILE]`; else None."""
    found = _PLACE.fullmatch(_HUB.sub("", name.strip().removesuffix(":latest")))
    return (found[1], found[2] or "") if found else None


def known_model(name: str) -> CatalogModel | None:
    return next((model for model in catalog() if model.name == name), None)


def model_from(repo: str) -> CatalogModel | None:
    """Return the model that is pulled from a repository, at any revision."""
    for model in catalog():
        sources = [source.repo for source in (model.checkpoint, model.gguf) if source]
        if repo in [source.partition("@")[0] for source in sources]:
            return model
    return None


def known_names() -> list[str]:
    return [name for model in catalog() for name in (model.name, *model.aliases)]


def closest(name: str, names: Iterable[str]) -> str | None:
    if "/" in name:
        return None
    import difflib  # PERF: 2 ms, for a mistake only

    found = difflib.get_close_matches(name.lower(), list(names), n=1)
    return found[0] if found else None


def pull_advice(wanted: str) -> str:
    if close := closest(wanted, known_names()):
        return f"Did you mean {close}?"
    return (
        f"gptoss pulls {', '.join(m.name for m in catalog() if m.repo)}, what you add to "
        f"{user_models_file()}, and any gpt-oss of the hub as OWNER/NAME or OWNER/NAME:FILE.gguf"
    )


@functools.lru_cache(4)
def _catalog(users: Path, changed_ns: int) -> tuple[CatalogModel, ...]:
    """PERF: every request asks for names; only a changed file is read again."""
    tables = {table["name"]: table for table in _tables(_OURS)}
    ours = {name: _convert(table, _OURS) for name, table in tables.items()}
    if not changed_ns:
        return tuple(ours.values())
    theirs: dict[str, CatalogModel] = {}
    for table in _tables(users):
        name = _plain(str(table.get("name", "")))
        if name in theirs:
            raise UsageError(f"{users}: the model '{name}' is listed twice.")
        theirs[name] = _convert(tables.get(name, {}) | table | {"name": name}, users)
    found = ours | theirs
    _check(found, theirs.keys(), users)
    return tuple(found.values())


def _tables(path: Path) -> list[dict[str, Any]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Notepad begins with a BOM
        return msgspec.convert(content, _ModelsFile).model
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {in_words(error, content)}", hint=_AS_IN) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _plain(name: str) -> str:
    return name.lower().removesuffix(":latest")


def _convert(table: dict[str, Any], path: Path) -> CatalogModel:
    try:
        model = msgspec.convert(table, CatalogModel)
        for size in (model.needs.vram, model.needs.ram):
            parse_size(size, "needs")
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(
            f"{path}, model '{table['name']}': {in_words(error, table)}",
            hint=f"Keys of a model: {', '.join(CatalogModel.__struct_fields__)}.",
        ) from error
    file = os.path.expanduser(model.file)  # one of a user that is not here stays
    aliases = tuple(_plain(alias) for alias in model.aliases)
    return msgspec.structs.replace(model, aliases=aliases, file=file)


def _check(models: dict[str, CatalogModel], users: Collection[str], path: Path) -> None:
    owners = {name: name for name in models}
    for model in models.values():
        for alias in model.aliases:
            if owners.setdefault(alias, model.name) != model.name:
                raise UsageError(
                    f"{path}: '{alias}' would be a name of both '{owners[alias]}' and "
                    f"'{model.name}'.",
                    hint="Choose another name.",
                )
        if model.name in users:
            _check_user(model, path)


def _check_user(model: CatalogModel, path: Path) -> None:
    where = f"{path}, model '{model.name}'"
    for name in (model.name, *model.aliases):
        if not NAME.fullmatch(name):
            raise UsageError(f"{where}: '{name}' is not a name for a model.", hint="As mine:7b.")
    if model.embedded and model.name != "nano":
        raise UsageError(f"{where}: only nano is embedded.")
    if model.is_local and model.repo:
        raise UsageError(
            f"{where}: it has a file of its own and a place to pull it from.",
            hint="Leave out `file`, or `checkpoint` and `gguf`.",
        )
    if model.file and not model.is_local and PurePath(model.file).name != model.file:
        raise UsageError(f"{where}: file '{model.file}' is neither a name nor an absolute path.")
    if model.file and (not model.file.endswith(".gguf") or "\0" in model.file):
        raise UsageError(f"{where}: file {model.file!r} is not a .gguf file.")
    if model.upstream and any("@" in url for url in model.upstream.urls):
        raise UsageError(  # not quoted, as messages are logged
            f"{where}: an address has a user and a password in it.",
            hint="`key_env` names a variable that has a key.",
        )
    if model.upstream and (model.embedded or model.file or model.repo):
        raise UsageError(
            f"{where}: it is computed elsewhere, and has a file or a place to pull one from.",
            hint="Choose another name for what is computed elsewhere.",
        )
    if not (model.embedded or model.file or model.repo or model.upstream):
        raise UsageError(f"{where}: nothing says where it comes from.", hint=_AS_IN)
