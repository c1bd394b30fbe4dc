"""Models that lie elsewhere or in several files, refusals, and the work of gc."""

import hashlib
from pathlib import Path

import pytest

from gptoss_local.base.errors import ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.engine.llama import Model
from gptoss_local.models.store import (
    BlobWriter,
    ModelDefaults,
    add_blob,
    add_model,
    adopt_file,
    delete_model,
    find_blob,
    find_garbage,
    find_model,
    known_sha256,
    list_models,
)
from tests.store.gguf_parts import as_ollama_wrote_it, split


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture(scope="module")
def parts(nano_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return split(nano_gguf, tmp_path_factory.mktemp("parts"), 3)


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
    assert names(settings) == ["tune"]
    assert find_model("tune", settings).path == settings.models_dir / parts[0].name
    delete_model("tune", settings)
    assert names(settings) == []
    assert all(part.is_file() for part in parts)


def test_what_llama_cpp_cannot_load_is_refused(
    settings: Settings, tmp_path: Path, nano_gguf: Path
) -> None:
    theirs = as_ollama_wrote_it(nano_gguf, tmp_path / "theirs.gguf")
    with pytest.raises(UsageError, match="Ollama's own layout"):
        adopt_file(theirs, settings)
    with pytest.raises(ModelLoadError, match="unknown model architecture: 'gptoss'"):
        Model(theirs)  # else it could be taken
    fused = tmp_path / "fused.gguf"
    data = nano_gguf.read_bytes()
    fused.write_bytes(data.replace(b"blk.0.ffn_up_exps.weight", b"blk.0.ffn_xx_exps.weight", 1))
    with pytest.raises(UsageError, match=r"lacks the tensor blk\.0\.ffn_up_exps"):
        adopt_file(fused, settings)
    assert names(settings) == []


def test_a_blob_goes_with_the_last_of_its_names(
    settings: Settings, tmp_path: Path, tiny: Path
) -> None:
    settings.models_dir.mkdir(parents=True)
    file = tmp_path / "arrived"
    file.write_bytes(tiny.read_bytes())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    add_model("a", file, settings)
    blob = add_blob(file, f"sha256:{digest}", settings)
    add_model("b", blob, settings, ModelDefaults(system="x"))
    for name in ("a", "b"):
        assert known_sha256(find_model(name, settings).path or Path(), settings) == digest
    assert known_sha256(tiny, settings) is None
    delete_model("a", settings)
    assert find_blob(f"sha256:{digest}", settings) == blob
    delete_model("b", settings)
    assert [path for path in settings.models_dir.rglob("*") if path.is_file()] == []


def test_gc_removes_what_nobody_needs(settings: Settings, tiny: Path) -> None:
    folder = settings.models_dir
    add_model("plain", tiny, settings)
    add_model("brief", tiny, settings, ModelDefaults(system="x"))
    for data in (b"up", b"shared"):
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        with BlobWriter(digest, settings) as blob:
            blob.write(data)
            blob.finish()
    (folder / "weights" / "1-linked.gguf").hardlink_to(find_blob(digest, settings))
    (folder / "x.1234.part").write_bytes(b"123")
    (folder / "weights" / "1-lost.gguf").write_bytes(b"12345")
    (folder / "m.gguf.download" / "m").mkdir(parents=True)
    (folder / "m.gguf.download" / "m" / "shard").write_bytes(b"1234567")
    (folder / "m.gguf.partial").write_bytes(b"1")
    # The others may be work in progress.
    assert {each.kind for each in find_garbage(settings)} == {"interrupted"}
    found = find_garbage(settings, quiet_s=-1)
    assert sorted((each.kind, each.size_bytes) for each in found) == [
        ("blob", 2),
        ("blob", 6),
        ("interrupted", 1),
        ("interrupted", 7),
        ("part", 3),
        ("weights", 0),  # as the blob has its bytes
        ("weights", 5),
    ]
    for each in found:
        each.remove()
    assert find_garbage(settings, quiet_s=-1) == []
    assert sorted(names(settings)) == ["brief", "plain"]
    assert find_model("brief", settings).path is not None
    assert {path.name for path in folder.iterdir()} >= {"plain.gguf", "brief.json", "weights"}
