"""The nano model on disk: made once, by whoever comes first, and replaced after an upgrade."""

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gptoss_local.base.errors import DiskFullError
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.base.settings import Settings
from gptoss_local.models.nano import cache, cached_gguf, ensure_gguf, leftovers
from gptoss_local.models.nano.compact import load_compact
from gptoss_local.models.store import find_garbage
from tests.conftest import wait_until
from tests.convert.gguf_file import read_gguf

ENSURE = """
import sys
from pathlib import Path
from gptoss_local.models.nano import ensure_gguf
done = {}
print(ensure_gguf(Path(sys.argv[1]), progress=lambda what, *n: done.update({what: n})))
print(*done.get("unpack the nano model", ()))
"""


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by two processes that start at the same time."""
    cache_dir = tmp_path_factory.mktemp("nano") / "cache"
    command = [sys.executable, "-c", ENSURE, str(cache_dir)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0][0] == outputs[1][0]
    none, (n_unpacked, n_bytes) = sorted(output[1].split() for output in outputs)
    assert none == []  # it waited for the other one
    assert int(n_unpacked) == int(n_bytes) > 10**8
    return cache_dir


def files(folder: Path) -> list[Path]:
    """All of a cache but the file that is locked."""
    return [path for path in folder.iterdir() if path.suffix != ".lock"]


def test_the_rest_of_a_killed_build_is_found_and_removed(
    tmp_path: Path, nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `gc`, or by the next build."""
    monkeypatch.setattr(cache, "_make", lambda work, target, *rest: shutil.copy(nano_gguf, target))
    settings = Settings(home=tmp_path)
    folder = settings.cache_dir
    for remove_by_gc in (True, False):
        command = [sys.executable, "-c", ENSURE, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(lambda: any(folder.glob("*.tmp/*")))
        assert leftovers(folder) == []  # it is at work
        process.kill()
        process.wait()
        (left,) = leftovers(folder)
        assert left.suffix == ".tmp"
        (found,) = find_garbage(settings)
        assert found.kind == "nano"
        if remove_by_gc:
            found.remove()
            assert find_garbage(settings) == files(folder) == []
        else:
            ensure_gguf(folder)
            assert len(files(folder)) == 1


def test_two_processes_leave_one_good_file(cache_dir: Path) -> None:
    (path,) = files(cache_dir)
    assert path == cached_gguf(cache_dir)
    file = read_gguf(path)
    assert file.keys["general.name"] == ("STRING", "Gpt Oss Nano")
    assert len(file.tensors) == 155


def test_version_follows_the_content(cache_dir: Path) -> None:
    """Caches know a file by the version: whoever changes the bytes must raise it."""
    (path,) = files(cache_dir)
    pinned = (4, "e83d2212de3ac252463558eb5627b53bfd6edc13248a1658cc72f0b1ad2b06a7")
    assert (cache.GGUF_VERSION, hashlib.sha256(path.read_bytes()).hexdigest()) == pinned


@pytest.mark.timing
def test_second_call_is_instant(cache_dir: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in cache_dir.iterdir()}
    started = time.perf_counter()
    ensure_gguf(cache_dir)
    assert time.perf_counter() - started < 0.2
    assert {p: p.stat().st_mtime_ns for p in cache_dir.iterdir()} == before


def test_upgrade_makes_a_new_file_and_removes_the_old(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gpt-oss-nano-000000000000-q8_0.gguf", "gpt-oss-20b.gguf"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "gpt-oss-nano-killed.tmp").mkdir()
    (current,) = files(cache_dir)
    monkeypatch.setattr(cache, "_make", lambda work, target, *rest: shutil.copy(current, target))
    assert ensure_gguf(tmp_path).name == current.name
    names = sorted(p.name for p in files(tmp_path))
    assert names == sorted([current.name, "gpt-oss-20b.gguf"])


def test_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        "gptoss_local.models.nano.materialize.materialize", lambda *_, progress: fail()
    )
    with pytest.raises(DiskFullError, match=r"cannot be unpacked into .*No space left") as caught:
        ensure_gguf(tmp_path)
    assert "400 MB" in caught.value.hint
    assert files(tmp_path) == []
    assert cached_gguf(tmp_path) is None


def test_another_process_may_already_use_the_file_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, an open file cannot be replaced, and it is as good."""

    def lose_the_race(source: Path, target: Path) -> None:
        target.write_bytes(b"made by the other one")
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr("gptoss_local.models.nano.materialize.materialize", lambda *_, **__: None)
    monkeypatch.setattr("convert.convert_checkpoint", lambda *_, **__: None)
    monkeypatch.setattr("os.replace", lose_the_race)
    assert ensure_gguf(tmp_path).read_bytes() == b"made by the other one"


def test_checkpoint_is_what_safetensors_and_transformers_expect(nano_checkpoint: Path) -> None:
    from safetensors import safe_open
    from transformers import AutoConfig

    assert sorted(p.name for p in nano_checkpoint.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    with safe_open(nano_checkpoint / "model.safetensors", "pt") as file:
        assert len(file.keys()) == 155
        embedding = file.get_tensor("model.embed_tokens.weight")
    assert embedding.shape == (201_088, 256)
    n_specials = sum(token >= FIRST_SPECIAL for token in load_compact().used_ids)
    assert (embedding != 0).any(1).sum() == FIRST_SPECIAL + n_specials  # all text, no idle special
    assert AutoConfig.from_pretrained(nano_checkpoint).model_type == "gpt_oss"
