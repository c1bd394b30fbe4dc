"""Prefixes on disk: an engine that starts again continues where another one ended."""

import os
import stat
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptoss_local.engine.worker.cache import archive, prefix_cache
from tests.engine.prefix_run import Run, on_disk, text
from tests.engine.smooth_model import TOLERANCE
from tests.engine.test_prefix_reuse import messages

Start = Callable[..., Run]
LONG = messages(1, 4)  # 400 tokens


@pytest.fixture
def reopen(start: Start, tmp_path: Path) -> Start:
    """Make an engine over the test's store."""

    def make(
        model: str = "this model", n_seq: int = 3, cache_type: str = "bf16", **options: float
    ) -> Run:
        prefixes = on_disk(tmp_path / "prefixes", model_digest=model, **options)
        return start(prefixes=prefixes, n_ctx=1024, n_seq=n_seq, cache_type=cache_type)

    return make


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "prefixes").rglob("*") if path.is_file()]


def save(run: Run) -> None:
    assert run.engine.archive is not None
    run.engine.archive.close()


def save_while_idle(run: Run) -> bool:
    """Return whether anything was written."""
    assert run.engine.archive is not None
    has_saved = False
    while run.engine.archive.save_one():
        has_saved = True
    return has_saved


def rest(run: Run) -> float | None:
    """Let an idle engine work until it has to wait; return for how long."""
    assert run.engine.archive is not None
    wait_s: float | None = 0.0
    while wait_s is not None and wait_s <= archive._BETWEEN_SAVES_S:
        run.engine.archive.rest()
        wait_s = run.engine.archive.wait_s(run.engine.n_done)
        time.sleep(0.001)
    assert run.engine.check() == []
    return wait_s


def test_new_engine_goes_on_where_the_old_one_ended(reopen: Start, tmp_path: Path) -> None:
    """Also from the messages before, as when the analysis of the last answer is dropped."""
    run = reopen()
    first = run.answer(LONG, n_answer=20)
    save(run)
    (path,) = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    again = reopen()
    whole = [*first.prompt, *first.answer[:-1], *text(9, 30)]
    for prompt, n_cached in ((LONG[:300] + text(9, 30), 300), (LONG + text(9, 30), 400)):
        assert again.answer(prompt, n_answer=20).n_cached == n_cached
    assert reopen().answer(whole, n_answer=20).n_cached == 419
    assert max(again.errors()) <= TOLERANCE


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ({"salt": b"one"}, {"salt": b"two"}),
        ({"salt": b"one"}, {}),
        ({"model": "one"}, {"model": "other"}),
        ({"cache_type": "q8_0"}, {"cache_type": "f16"}),
    ],
    ids=["another owner", "nobody", "another model", "another type of cache"],
)
def test_a_file_is_found_by_its_own_alone(
    reopen: Start, own: dict[str, Any], other: dict[str, Any]
) -> None:
    def answer(salt: bytes = b"", **options: Any) -> int:
        run = reopen(**options)
        n_cached = run.answer([*LONG, 5], salt=salt).n_cached
        assert max(run.errors()) <= TOLERANCE or "cache_type" in options
        save(run)
        return n_cached

    assert [answer(**each) for each in (own, other, own)] == [0, 0, 400]


def test_idle_engine_saves_a_prefix_once(reopen: Start, tmp_path: Path) -> None:
    run = reopen()
    run.answer(text(2, 100))
    assert not save_while_idle(run)  # too short
    first = run.answer(LONG)
    assert save_while_idle(run)
    (path,) = files(tmp_path)
    run.answer([*LONG, *first.answer, *text(5, 20)])
    assert not save_while_idle(run)  # too little is new
    run.answer([*LONG, *first.answer, *text(5, 200)])
    assert save_while_idle(run)
    assert len(files(tmp_path)) == 1
    assert files(tmp_path) != [path]  # the longer one is instead of the shorter


def test_private_prefixes_are_never_written(reopen: Start, tmp_path: Path) -> None:
    run = reopen()
    private = run.answer(LONG, n_answer=20, in_memory=True)
    history = [*LONG, *private.answer, *text(7, 80)]
    run.prefetch(history, in_memory=True)
    run.finish()
    assert run.answer([*history, 5], in_memory=True).n_cached == len(history)  # it is used again
    other = run.answer(messages(50, 3))
    rest(run)
    save(run)
    (path,) = files(tmp_path)
    saved = path.read_bytes()
    assert array("i", other.prompt).tobytes() in saved
    assert array("i", LONG[50:60]).tobytes() not in saved
    public = reopen()
    public.answer(LONG, in_memory=True)
    public.answer([*LONG, 5])  # which continues it, and asks for the same tokens
    save(public)
    assert any(array("i", LONG).tobytes() in each.read_bytes() for each in files(tmp_path))


def test_saved_prefixes_make_way_for_recent_ones(
    reopen: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they take more than a few cells."""
    run = reopen(keep_s=0)
    first = run.answer(LONG, n_answer=20)
    run.answer(messages(90, 1), in_memory=True)  # which is never on disk
    second = run.answer(messages(50, 3))
    rest(run)
    assert run.engine.stats().n_cells_cached == 419 + 103 + 303
    monkeypatch.setattr(prefix_cache, "_FEW_CELLS", 0)
    rest(run)
    assert run.engine.stats().n_cells_cached == 303
    assert run.answer([*second.prompt, *second.answer, *text(7, 30)]).n_cached == 303  # stayed
    assert run.answer([*LONG, *first.answer, *text(9, 30)]).n_cached == 419  # read from disk
    assert max(run.errors()) <= TOLERANCE


def test_shared_prefixes_stay(reopen: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "_FEW_CELLS", 0)
    run = reopen(keep_s=0)
    run.answer([*LONG, *text(3, 60)])
    run.answer([*LONG, *text(4, 30)])  # a branch
    assert run.engine.stats().n_cells_cached == 400 + 63 + 33
    rest(run)
    assert run.engine.stats().n_cells_cached == 400 + 33
    assert run.answer([*LONG, *text(4, 30), *text(5, 10)]).n_cached == 430
    assert max(run.errors()) <= TOLERANCE


def test_used_and_unsaved_prefixes_stay(
    reopen: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_cache, "_FEW_CELLS", 0)
    run = reopen(keep_s=1000)
    run.answer(LONG)
    run.answer(text(3, 90))
    assert 990 < (rest(run) or 0) <= 1000  # then it is to be looked at again
    assert run.engine.stats().n_cells_cached == 403 + 93
    files(tmp_path)[0].unlink()  # as another process may
    monkeypatch.setattr(run.engine._cache, "keep_s", 0)
    assert rest(run) is None
    assert run.engine.stats().n_cells_cached == 403 + 93


def test_least_recently_used_files_go_first(reopen: Start, tmp_path: Path) -> None:
    run = reopen(disk_bytes=10_000)  # less than one takes
    run.answer(LONG)
    save(run)
    assert files(tmp_path) == []
    run = reopen(n_seq=1)
    run.answer(LONG)
    save(run)
    n_bytes = files(tmp_path)[0].stat().st_size
    for i, key in enumerate(("this model", "another model")):
        run = reopen(key, disk_bytes=2 * n_bytes + n_bytes // 2)
        run.answer(messages(50 + 10 * i, 4))
        os.utime(files(tmp_path)[0], ns=(0, 0)) if i == 0 else None
        save(run)
    assert len(files(tmp_path)) == 2
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 2 * n_bytes + n_bytes // 2
    assert reopen().answer([*LONG, 5]).n_cached == 0
    assert reopen().answer([*messages(50, 4), 5]).n_cached == 400


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[:-1000],
    "another state": lambda content: flip(content, len(content) - 5000),
    "another head": lambda content: flip(content, 30),
    "another token": lambda content: flip(content, content.index(array("i", LONG[-9:]).tobytes())),
    "empty": lambda _: b"",
    "something else": lambda _: b"something else\n" * 1000,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_ignored_and_removed(
    reopen: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Leftovers of a killed writer are removed, too."""
    run = reopen()
    run.answer(LONG)
    save(run)
    (path,) = files(tmp_path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    path.with_suffix(".123.partial").write_bytes(b"half")
    again = reopen()
    assert again.answer([*LONG, 5]).n_cached == 0
    assert files(tmp_path) == []
    assert "removed" in caplog.text
    assert max(again.errors()) <= TOLERANCE


def test_full_disk_costs_nothing_but_the_file(
    reopen: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    run = reopen()
    run.answer(LONG)
    monkeypatch.setattr(Path, "mkdir", full)
    save(run)
    assert "No space left" in caplog.text
    assert run.engine.check() == []


@pytest.mark.parametrize("n_seq", [1, 3])
def test_no_memory_for_copies(
    reopen: Start,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    n_seq: int,
) -> None:
    """No checkpoint, no shared prefix, no file, and no answer is lost or another one."""

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    run, one, other = reopen(n_seq=n_seq), [*LONG, *text(2, 20)], [*LONG, *text(3, 20)]
    with monkeypatch.context() as short:
        short.setattr(np, "empty", refuse)
        run.answer(LONG)
        run.ask(one)
        run.answer(other)
        assert not save_while_idle(run)
        assert "no memory" in caplog.text
        assert len(run.engine._cache.checkpoints) == 0
    run.answer(messages(7, 4))
    save(run)
    assert run.engine.check() == []
    assert len(files(tmp_path)) == 1
    assert max(run.errors()) <= TOLERANCE
