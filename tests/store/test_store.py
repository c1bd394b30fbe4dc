"""Names, files and headers."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from gptoss_local.base.errors import ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import (
    ModelDefaults,
    add_model,
    delete_model,
    file_for,
    find_garbage,
    find_model,
    list_models,
    read_info,
    read_tokens,
)


@pytest.mark.quick
def test_files_become_models(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert [(e.name, e.path) for e in list_models(settings)] == [("nano", None)]
    settings.models_dir.mkdir()
    for age_s, name in enumerate(("gpt-oss-20b.gguf", "Tuned.gguf", "notes.txt")):
        path = settings.models_dir / name
        path.touch()
        os.utime(path, (1000 - age_s, 1000 - age_s))
    assert [e.name for e in list_models(settings)] == ["gpt-oss:20b", "tuned", "nano"]
    assert find_model("20b", settings).path == settings.models_dir / "gpt-oss-20b.gguf"
    assert len({e.digest for e in list_models(settings)}) == 3
    with pytest.raises(ModelNotFoundError, match="model 'x' not found"):
        find_model("x", settings)


@pytest.mark.quick
def test_header_equals_gguf_py(tmp_path: Path) -> None:
    """Every value type, arrays among the scalars, and tensors of one to three dimensions."""
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "gpt-oss")
    for value_type in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{value_type}")(f"x.{value_type}", 100)
    writer.add_float32("x.float32", 0.5)
    writer.add_float64("x.float64", 0.1)
    writer.add_bool("x.bool", True)
    writer.add_string("x.string", "漢字")
    writer.add_array("x.floats", [0.5, 1.5])
    writer.add_array("x.strings", ["a", "", "ccc"])
    writer.add_token_list(["Ġthe", "é", ""])
    writer.add_uint32("x.last", 7)
    for n_dims in (1, 2, 3):
        writer.add_tensor(f"t{n_dims}", np.zeros((32,) * n_dims, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    info, reader = read_info(path), gguf.GGUFReader(path)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            is_array = field.types[0] == gguf.GGUFValueType.ARRAY
            assert info.metadata[name] == (None if is_array else field.contents()), name
    assert info.n_parameters == sum(int(t.n_elements) for t in reader.tensors)
    assert info.size_bytes == path.stat().st_size
    assert read_tokens(path) == ["Ġthe", "é", ""]


@pytest.mark.quick
def test_names_become_files_and_back(tmp_path: Path, tiny: Path) -> None:
    settings = Settings(home=tmp_path)
    n_links = tiny.stat().st_nlink  # other tests have linked it, too
    for name in ("mine:7b", "someone/tuned", "20b", "host.example/me/m:v1.0"):
        add_model(name, tiny, settings)
        assert find_model(name.upper(), settings).path == file_for(name, settings)
    assert file_for("20b", settings) == settings.models_dir / "gpt-oss-20b.gguf"
    assert {p.parent for p in settings.models_dir.rglob("*")} == {settings.models_dir}
    assert tiny.stat().st_nlink == n_links + 4
    delete_model("mine:7B", settings)
    with pytest.raises(ModelNotFoundError):
        delete_model("mine:7b", settings)
    odd = ["", "..", "../x", "a//b", "/etc/passwd", "a b", "x" * 81, ".x", "a\\b", "nano", "ä"]
    for name in odd:
        with pytest.raises(UsageError):
            add_model(name, tiny, settings)
    assert tiny.is_file()


def test_a_model_is_replaced_at_once(tmp_path: Path, tiny: Path) -> None:
    """A process that has the old file open keeps it; a bad file changes nothing."""
    settings = Settings(home=tmp_path)
    old = settings.models_dir / "Mine.gguf"
    settings.models_dir.mkdir()
    old.write_bytes(b"old")
    with old.open("rb") as reader:
        add_model("mine", tiny, settings)
        assert reader.read() == b"old"
    assert old.samefile(tiny)
    add_model("mine", old, settings)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="not in GGUF format"):
        add_model("mine", bad, settings)
    assert [p.name for p in settings.models_dir.iterdir()] == ["Mine.gguf"]
    assert old.samefile(tiny)


BRIEF = ModelDefaults(parent="nano", system="Be brief.", parameters={"seed": 1})


def names(settings: Settings) -> dict[str, str]:
    """Systems of all models but the embedded one, by name."""
    return {e.name: e.defaults.system for e in list_models(settings) if not e.embedded}


def test_names_with_defaults(settings: Settings, tiny: Path) -> None:
    n_links = tiny.stat().st_nlink
    add_model("mine:7b", tiny, settings)
    plain = find_model("mine:7b", settings)
    add_model("mine:7b", tiny, settings, BRIEF)
    entry = find_model("MINE:7b", settings)
    assert (entry.defaults, entry.weights_id) == (BRIEF, plain.weights_id)
    assert entry.digest != plain.digest
    assert entry.path is not None
    assert entry.path.samefile(tiny)
    for odd in ("x" * 5000, "\ud800", "a\0b", "", ".", "../x"):
        with pytest.raises(ModelNotFoundError):
            find_model(odd, settings)
    assert [p.name for p in settings.models_dir.iterdir() if p.is_file()] == ["mine%3A7b.json"]
    add_model("mine:7b", entry.path, settings, ModelDefaults(system="Again."))
    assert tiny.stat().st_nlink == n_links + 1
    add_model("mine:7b", tiny, settings, ModelDefaults(parent="nano"))
    assert find_model("mine:7b", settings).manifest is None
    delete_model("mine:7b", settings)
    assert tiny.stat().st_nlink == n_links
    assert names(settings) == {}


@pytest.mark.parametrize("old", [None, BRIEF, ModelDefaults(system="Old.")])
@pytest.mark.parametrize("new", [None, BRIEF])
def test_a_change_that_dies_leaves_old_or_new(
    tmp_path: Path, tiny: Path, old: ModelDefaults | None, new: ModelDefaults | None
) -> None:
    """Killed before each of its calls that change a file, and then repeated and deleted."""
    for n_calls in range(12):
        settings = Settings(home=tmp_path / str(n_calls))
        add_model("mine", tiny, settings, old)
        with pytest.MonkeyPatch.context() as patch:
            left = _die_after(n_calls, patch)
            with contextlib.suppress(KeyboardInterrupt):
                add_model("mine", tiny, settings, new)
        before, after = (d.system if d else "" for d in (old, new))
        assert names(settings)["mine"] in (before, after)
        path = find_model("mine", settings).path
        assert path is not None
        assert read_info(path).architecture == "gpt-oss"
        if left:
            assert names(settings) == {"mine": after}
        add_model("mine", tiny, settings, new)
        assert names(settings) == {"mine": after}
        delete_model("mine", settings)
        assert names(settings) == {}
        for each in find_garbage(settings, quiet_s=-1):
            each.remove()
        assert not list(settings.models_dir.rglob("*.gguf"))
    assert left, "more calls than were tried"


def _die_after(n_calls: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Let calls that change files fail from the n-th on; returns a list with the calls left."""
    left = [0] * n_calls

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if not left:
                raise KeyboardInterrupt
            left.pop()
            return call(*args, **options)

        return wrapped

    for owner, name in ((os, "link"), (Path, "replace"), (Path, "unlink"), (os, "fsync")):
        patch.setattr(owner, name, dying(getattr(owner, name)))
    return left


@pytest.mark.quick
@pytest.mark.skipif(sys.platform == "win32", reason="no such files there")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("suffix", [".gguf", ".json"])
def test_a_pipe_or_a_folder_is_no_model(
    settings: Settings, make: Callable[[Path], None], suffix: str
) -> None:
    settings.models_dir.mkdir(parents=True)
    path = settings.models_dir / f"odd{suffix}"
    make(path)
    assert [entry.name for entry in list_models(settings)] == ["nano"]
    with pytest.raises(ModelNotFoundError):
        find_model("odd", settings)
    with pytest.raises(ModelLoadError, match="it is not a file"):
        read_info(path)


def test_a_copy_is_on_the_disk_before_the_model_is_there(
    settings: Settings, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def no_link(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "another file system")

    def sync(fd: int) -> None:
        assert not (settings.models_dir / "mine.gguf").exists()
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os, "fsync", sync)
    add_model("mine", tiny, settings)
    assert synced == [(settings.models_dir / "mine.gguf").stat().st_ino]
