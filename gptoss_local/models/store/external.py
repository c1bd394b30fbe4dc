"""Models of gpt-oss that Ollama or Hugging Face's cache has on this disk, which are only read.

Source of Ollama's layout: its types/model/name.go and manifest/paths.go.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Literal

import msgspec

from gptoss_local.base.errors import ConvertError, GptOssError, ModelLoadError
from gptoss_local.base.formats.gguf_file import read_info, split_files
from gptoss_local.models.catalog import canonical_name, catalog, model_from
from gptoss_local.models.names import is_model_file
from gptoss_local.models.store.checks import check_usable

_MODEL_LAYER = "application/vnd.ollama.image.model"
_SERVICE_FOLDER = Path("/usr/share/ollama/.ollama/models")  # of Ollama's systemd service
_TREES = ("manifests-v2", "manifests")  # what 0.40 has migrated, and what it keeps for older ones
_USUAL = ("registry.ollama.ai", "ollama.com", "library")
_CONFIG_BYTES = 1 << 20
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class FoundModel(msgspec.Struct, frozen=True):
    """A GGUF, or the folder of a checkpoint; `gptoss import` knows it by name."""

    name: str
    owner: Literal["Ollama", "Hugging Face"]
    kind: Literal["gguf", "checkpoint"]
    path: Path
    size_bytes: int
    model: str = ""
    problem: str = ""


class _CachedRepo(msgspec.Struct, frozen=True):
    repo: str
    folder: Path
    files: dict[str, int]


def find_elsewhere() -> list[FoundModel]:
    return [*_in_ollama(), *_in_hugging_face()]


def cached_checkpoint(repo: str) -> Path | None:
    for each in _cached_repos():
        if each.repo == repo and _is_checkpoint(each.folder) and not _missing_shard(each.folder):
            return each.folder
    return None


def ollama_folders() -> list[Path]:
    named = os.environ.get("OLLAMA_MODELS", "").strip().strip("'\"")
    folders = (Path(named),) if named else (Path.home() / ".ollama" / "models", _SERVICE_FOLDER)
    trees = {folder: [folder / tree for tree in _TREES] for folder in folders}
    may_read = os.R_OK | os.X_OK
    return [f for f in folders if any(t.is_dir() and os.access(t, may_read) for t in trees[f])]


class _Layer(msgspec.Struct, rename="camel"):
    digest: str
    media_type: str = ""


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []
    manifests: list[_Layer] = []


def _in_ollama() -> Iterator[FoundModel]:
    for folder in ollama_folders():
        named: set[str] = set()
        for tree in (folder / each for each in _TREES):
            for file in sorted(tree.glob("*/*/*/*")):
                name = _ollama_name(file.relative_to(tree))
                for blob in _model_blobs(file, folder / "blobs") if name not in named else ():
                    for found in _found_gguf(
                        f"ollama/{name}", "Ollama", blob, canonical_name(name)
                    ):
                        named.add(name)
                        yield found


def _model_blobs(manifest: Path, blobs: Path, *, is_listed: bool = False) -> Iterator[Path]:
    """Yield the weights of a manifest, or of those that it lists: one for each engine."""
    try:
        with manifest.open("rb") as file:
            found = msgspec.json.decode(file.read(_CONFIG_BYTES), type=_Manifest)
    except (OSError, *_NO_JSON):  # not for us to fix
        return
    for layer in found.layers:
        if layer.media_type == _MODEL_LAYER:
            yield blobs / layer.digest.replace(":", "-")
    for child in () if is_listed else found.manifests:
        yield from _model_blobs(blobs / child.digest.replace(":", "-"), blobs, is_listed=True)


def _ollama_name(path: Path) -> str:
    host, namespace, model, tag = path.parts
    shown = [part for part in (host, namespace) if part not in _USUAL]
    return "/".join([*shown, f"{model}:{tag}"])


def _in_hugging_face() -> Iterator[FoundModel]:
    for repo in _cached_repos():
        known = model_from(repo.repo)
        model = known.name if known else ""
        for inner in sorted(filter(is_model_file, repo.files)):  # quants often have folders
            name, file = f"hf/{repo.repo}/{inner}", repo.folder / inner
            yield from _found_gguf(name, "Hugging Face", file, model)
        sizes = [n for name, n in repo.files.items() if name.endswith(".safetensors")]
        if sizes and _is_checkpoint(repo.folder):
            name = f"hf/{repo.repo}"
            problem, n_bytes = _missing_shard(repo.folder), sum(sizes)
            yield FoundModel(
                name, "Hugging Face", "checkpoint", repo.folder, n_bytes, model, problem
            )


def _cached_repos() -> list[_CachedRepo]:
    """Find all models in the cache that HF_HUB_CACHE or HF_HOME name, the newest first."""
    from huggingface_hub import constants  # PERF: 0.3 s, for those who look here

    found = []
    cache = Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE)
    for snapshot in cache.glob("models--*/snapshots/*"):
        files, newest_s = {}, 0.0
        for path in snapshot.rglob("*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                if S_ISREG(stat.st_mode):
                    files[path.relative_to(snapshot).as_posix()] = stat.st_size
                    newest_s = max(newest_s, stat.st_mtime)
        repo = snapshot.parents[1].name.removeprefix("models--").replace("--", "/")
        if files:
            found.append((newest_s, _CachedRepo(repo, snapshot, files)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0], reverse=True)]


def _found_gguf(
    name: str, owner: Literal["Ollama", "Hugging Face"], path: Path, model: str
) -> Iterator[FoundModel]:
    """Yield a GGUF, if it is of gpt-oss or calls itself so."""
    try:
        architecture = read_info(path).architecture
    except ModelLoadError:
        return
    if architecture.replace("-", "") != "gptoss":
        return
    try:
        check_usable(path)
        problem = ""
    except GptOssError as error:
        problem = error.message
    known = model if any(model == each.name for each in catalog()) else ""
    size_bytes = sum(part.stat().st_size for part in split_files(path) if part.is_file())
    yield FoundModel(name, owner, "gguf", path, size_bytes, known, problem)


def _is_checkpoint(folder: Path) -> bool:
    try:
        with (folder / "config.json").open("rb") as file:
            config = msgspec.json.decode(file.read(_CONFIG_BYTES), type=dict)
    except (OSError, *_NO_JSON):
        return False
    return config.get("model_type") == "gpt_oss"


def _missing_shard(folder: Path) -> str:
    from convert.source import Source  # PERF: imports numpy

    try:
        missing = [path.name for path in Source(folder).shard_paths() if not path.is_file()]
    except (OSError, ConvertError) as error:
        return error.message if isinstance(error, ConvertError) else str(error)
    return f"{missing[0]} is missing" if missing else ""
