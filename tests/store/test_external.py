"""Models of Ollama and of Hugging Face's cache: found, used, never changed."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.models.store import adopt_file, find_model, known_sha256
from gptoss_local.models.store.external import find_elsewhere
from tests.convert.tiny import write_tiny
from tests.store.gguf_parts import as_ollama_wrote_it

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
    manifest.parent.mkdir(parents=True)
    layers = [
        {"mediaType": MODEL, "digest": f"sha256:{digest}", "size": file.stat().st_size},
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:1", "size": 1},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
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
def theirs(tmp_path: Path, nano_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk on which both have something, and something of no use."""
    folder, cache = tmp_path / "theirs" / "ollama", tmp_path / "theirs" / "hub"
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    made = tmp_path / "made"
    made.mkdir()
    old = as_ollama_wrote_it(nano_gguf, made / "old.gguf")
    ollama_model(folder, "registry.ollama.ai/library/gpt-oss/20b", old)
    (made / "llama.gguf").write_bytes(b"GGUF of another kind")
    ollama_model(folder, "registry.ollama.ai/library/llama3/latest", made / "llama.gguf")
    ollama_model(folder, "hf.co/ggml-org/gpt-oss-120b-GGUF/latest", nano_gguf)
    (folder / "manifests" / "registry.ollama.ai" / "library" / "cut").mkdir()
    (folder / "manifests" / "registry.ollama.ai" / "library" / "cut" / "1").write_text("{")
    published = tmp_path / "published"
    published.mkdir()
    (published / "gpt-oss-20b-mxfp4.gguf").hardlink_to(nano_gguf)
    cached(cache, "ggml-org/gpt-oss-20b-GGUF", published)
    cached(cache, "openai/gpt-oss-20b", write_tiny(tmp_path / "whole", n_shards=2))
    partly = write_tiny(tmp_path / "partly", n_shards=2)
    next(partly.glob("*00002-of*")).unlink()
    cached(cache, "me/tune", partly)
    return tmp_path / "theirs"


def test_what_there_is_is_found_and_used_and_stays(theirs: Path, tmp_path: Path) -> None:
    before = snapshot(theirs)
    found = {each.name: each for each in find_elsewhere()}
    assert {name: (each.kind, each.model, each.problem[:20]) for name, each in found.items()} == {
        "ollama/gpt-oss:20b": ("gguf", "gpt-oss:20b", "this is Ollama's own"),
        "ollama/hf.co/ggml-org/gpt-oss-120b-GGUF:latest": ("gguf", "", ""),
        "hf/ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-mxfp4.gguf": ("gguf", "gpt-oss:20b", ""),
        "hf/openai/gpt-oss-20b": ("checkpoint", "gpt-oss:20b", ""),
        "hf/me/tune": ("checkpoint", "", "model-00002-of-00002"),
    }
    settings = Settings(home=tmp_path / "home")
    for name, each in found.items():
        if each.kind == "gguf" and not each.problem:
            entry = adopt_file(each.path, settings, name.rpartition("/")[2].lower())
            assert entry.size_bytes == each.size_bytes
            assert (
                known_sha256(each.path, settings)
                == hashlib.sha256(each.path.read_bytes()).hexdigest()
            )
            assert find_model(entry.name, settings).path == each.path
    assert snapshot(theirs) == before


def test_a_dangling_link_hides_no_other_model(theirs: Path) -> None:
    before = {each.name for each in find_elsewhere()}
    snapshots = sorted((theirs / "hub").glob("models--*/snapshots/*"))
    assert snapshots
    for folder in snapshots:
        (folder / "gone.gguf").symlink_to("../../blobs/" + "0" * 64)
    assert {each.name for each in find_elsewhere()} == before
