"""Models that lie elsewhere: files of the user, of Ollama and of Hugging Face's cache."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from gptoss_local.base.errors import ModelNotFoundError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.engine.llama import Model
from gptoss_local.models.store import (
    ModelDefaults,
    add_model,
    adopt_file,
    delete_model,
    find_model,
    known_sha256,
    list_models,
)
from gptoss_local.models.store.external import find_elsewhere
from tests.convert.tiny import write_tiny
from tests.store.gguf_parts import as_ollama_wrote_it


def names(settings: Settings) -> list[str]:
    return [entry.name for entry in list_models(settings) if not entry.embedded]


def test_a_file_is_referred_to_and_never_touched(
    settings: Settings, tmp_path: Path, tiny: Path
) -> None:
    file = tmp_path / "Mine.gguf"
    file.hardlink_to(tiny)
    before = file.stat()
    adopt_file(file, settings, "mine:1")
    add_model("copy", file, settings, ModelDefaults(system="Be brief."), in_place=True)
    entry = find_model("copy", settings)
    assert (entry.path, entry.is_in_place) == (file, True)
    assert not list(settings.models_dir.rglob("*.gguf"))
    assert (file.stat().st_nlink, file.stat().st_mtime_ns) == (before.st_nlink, before.st_mtime_ns)
    with pytest.raises(UsageError, match="another model 'copy'"):
        adopt_file(file, settings, "copy")  # its defaults would come with it, unasked
    delete_model("copy", settings)
    assert file.is_file()
    file.unlink()
    assert names(settings) == []
    with pytest.raises(ModelNotFoundError, match=r"is the file .*Mine\.gguf, which is gone"):
        find_model("mine:1", settings)
    delete_model("mine:1", settings)
    with pytest.raises(ModelNotFoundError, match="model 'mine:1' not found"):
        find_model("mine:1", settings)


def test_a_model_in_several_files(settings: Settings, parts: list[Path]) -> None:
    """It is one model, copied and deleted as a whole, and llama.cpp finds all of it."""
    entry = adopt_file(parts[1], settings)
    assert (entry.name, entry.path) == ("tune", parts[0])
    assert entry.size_bytes == sum(part.stat().st_size for part in parts)
    add_model("own", parts[0], settings)
    add_model("own", find_model("own", settings).path or Path(), settings)
    own = find_model("own", settings)
    assert len(list(settings.models_dir.rglob("*.gguf"))) == len(parts)
    assert own.path is not None
    Model(own.path).close()
    own.files[1].unlink()
    assert names(settings) == ["tune"]
    with pytest.raises(ModelNotFoundError, match="00002-of-0000"):
        find_model("own", settings)
    delete_model("own", settings)
    assert not list(settings.models_dir.rglob("*.gguf"))
    for part in parts:
        (settings.models_dir / part.name).hardlink_to(part)
    delete_model("tune", settings)  # the adopted model goes first
    assert find_model("tune", settings).path == settings.models_dir / parts[0].name
    delete_model("tune", settings)
    assert names(settings) == []
    assert all(part.is_file() for part in parts)


MODEL = "application/vnd.ollama.image.model"


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """All that could change: links, times, contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (stat.st_mtime_ns, stat.st_nlink, content)
    return found


def ollama_model(folder: Path, name: str, file: Path) -> Path:
    """Lay a model out as Ollama does: a manifest, and blobs called by their sha256."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    blob = folder / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    if not blob.exists():
        blob.hardlink_to(file)
    manifest = folder / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": MODEL, "digest": f"sha256:{digest}", "size": file.stat().st_size},
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:1", "size": 1},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def migrate(folder: Path, name: str, before: Path, after: Path) -> Path:
    """Give a model another file and a list of manifests, as Ollama 0.40 does; an old name stays."""
    before.unlink()
    blob = ollama_model(folder, f"{name}-new", after)
    legacy = folder / "manifests" / f"{name}-new"
    child = hashlib.sha256(legacy.read_bytes()).hexdigest()
    legacy.replace(folder / "blobs" / f"sha256-{child}")
    listed = {"mediaType": "list", "manifests": [{"digest": f"sha256:{child}", "format": "gguf"}]}
    data = json.dumps(listed).encode()
    (folder / "blobs" / "sha256-list").write_bytes(data)
    entry = folder / "manifests-v2" / name.replace("registry.ollama.ai", "ollama.com")
    entry.parent.mkdir(parents=True)
    entry.symlink_to(folder / "blobs" / "sha256-list")
    return blob


def cached(cache: Path, repo: str, files: Path) -> Path:
    """Lay a repository out as huggingface_hub's cache does: links to blobs."""
    root = cache / f"models--{repo.replace('/', '--')}"
    commit = "a" * 40
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    (root / "blobs").mkdir()
    for file in (path for path in files.rglob("*") if path.is_file()):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        (root / "blobs" / digest).write_bytes(file.read_bytes())
        link = root / "snapshots" / commit / file.relative_to(files)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(root / "blobs" / digest, link.parent))
    return root / "snapshots" / commit


@pytest.fixture
def theirs(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk on which both have something, and something of no use."""
    folder, cache = tmp_path / "theirs" / "ollama", tmp_path / "theirs" / "hub"
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    made = tmp_path / "made"
    made.mkdir()
    old = as_ollama_wrote_it(tiny, made / "old.gguf")
    ollama_model(folder, "registry.ollama.ai/library/gpt-oss/20b", old)
    (made / "llama.gguf").write_bytes(b"GGUF of another kind")
    ollama_model(folder, "registry.ollama.ai/library/llama3/latest", made / "llama.gguf")
    ollama_model(folder, "hf.co/ggml-org/gpt-oss-120b-GGUF/latest", tiny)
    (folder / "manifests" / "registry.ollama.ai" / "library" / "cut").mkdir()
    (folder / "manifests" / "registry.ollama.ai" / "library" / "cut" / "1").write_text("{")
    published = tmp_path / "published"
    published.mkdir()
    (published / "gpt-oss-20b-mxfp4.gguf").hardlink_to(tiny)
    cached(cache, "ggml-org/gpt-oss-20b-GGUF", published)
    cached(cache, "openai/gpt-oss-20b", write_tiny(tmp_path / "whole", n_shards=2))
    partly = write_tiny(tmp_path / "partly", n_shards=2)
    next(partly.glob("*00002-of*")).unlink()
    cached(cache, "me/tune", partly)
    return tmp_path / "theirs"


def test_ollama_migrates_its_files(
    tmp_path: Path, tiny: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, name = tmp_path / "ollama", "registry.ollama.ai/library/gpt-oss/20b"
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    shutil.copy(tiny, tmp_path / "legacy.gguf")
    blob = ollama_model(folder, name, tmp_path / "legacy.gguf")
    adopt_file(blob, settings, "mine")
    (tmp_path / "new.gguf").write_bytes(tiny.read_bytes() + b"another digest")
    moved = migrate(folder, name, blob, tmp_path / "new.gguf")
    assert [(each.name, each.path) for each in find_elsewhere()] == [("ollama/gpt-oss:20b", moved)]
    with pytest.raises(ModelNotFoundError, match="which is gone") as raised:
        find_model("mine", settings)
    assert "gptoss import" in raised.value.hint
    adopt_file(moved, settings, "mine:2")
    assert names(settings) == ["mine:2"]


def test_models_of_other_programs_are_used_and_stay(theirs: Path, settings: Settings) -> None:
    before = snapshot(theirs)
    found = {each.name: each for each in find_elsewhere()}
    assert {name: (each.kind, each.model, each.problem[:20]) for name, each in found.items()} == {
        "ollama/gpt-oss:20b": ("gguf", "gpt-oss:20b", "this is Ollama's own"),
        "ollama/hf.co/ggml-org/gpt-oss-120b-GGUF:latest": ("gguf", "", ""),
        "hf/ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-mxfp4.gguf": ("gguf", "gpt-oss:20b", ""),
        "hf/openai/gpt-oss-20b": ("checkpoint", "gpt-oss:20b", ""),
        "hf/me/tune": ("checkpoint", "", "model-00002-of-00002"),
    }
    for name, each in found.items():
        if each.kind == "gguf" and not each.problem:
            entry = adopt_file(each.path, settings, name.rpartition("/")[2].lower())
            assert entry.size_bytes == each.size_bytes
            digest = hashlib.sha256(each.path.read_bytes()).hexdigest()
            assert known_sha256(each.path, settings) == digest
            assert find_model(entry.name, settings).path == each.path
    assert snapshot(theirs) == before
    for folder in (theirs / "hub").glob("models--*/snapshots/*"):
        (folder / "gone.gguf").symlink_to("../../blobs/" + "0" * 64)
    assert {each.name for each in find_elsewhere()} == found.keys()  # a dangling link hides none
