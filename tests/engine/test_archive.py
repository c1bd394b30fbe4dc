"""Prefixes on disk: an engine that starts anew goes on where another one ended."""

import os
import stat
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gptoss_local.base.types import CacheType
from gptoss_local.engine.worker.cache import archive, prefix_cache
from gptoss_local.engine.worker.cache.prefix_store import PrefixStore
from tests.engine.prefix_run import Run, on_disk, text
from tests.engine.smooth_model import TOLERANCE
from tests.engine.test_prefix_reuse import messages

Start = Callable[..., Run]
LONG = messages(1, 4)  # 400 tokens


@pytest.fixture
def reopen(start: Start, tmp_path: Path) -> Start:
    """Make an engine over the test's store."""

    def make(
        model: str = "this model",
        n_seq: int = 3,
        cache_type: CacheType = "bf16",
        **options: float,
    ) -> Run:
        prefixes = on_disk(tmp_path / "prefixes", model_digest=model, **options)
        return start(prefixes=prefixes, n_ctx=1024, n_seq=n_seq, cache_type=cache_type)

    return make


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "prefixes").rglob("*") if path.is_file()]


def save(run: Run) -> None:
    assert run.engine.archive is not None
    run.engine.archive.close()


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
    run = reopen()
    first = run.answer(LONG, n_answer=20)
    save(run)
    assert len(files(tmp_path)) == 1
    again = reopen()
    second = again.answer([*first.prompt, *first.answer[:-1], *text(9, 30)], n_answer=20)
    assert second.n_cached == 419
    assert max(again.errors()) <= TOLERANCE


def test_a_file_is_its_owners(reopen: Start, tmp_path: Path) -> None:
    for n_files, salt in enumerate((b"one", b"two"), 1):
        run = reopen()
        assert run.answer(LONG, salt=salt).n_cached == 0
        save(run)
        assert len(files(tmp_path)) == n_files
    assert reopen().answer([*LONG, 5]).n_cached == 0
    assert reopen().answer([*LONG, 5], salt=b"two").n_cached == 400


def test_a_cache_of_another_type_leaves_the_file_to_its_own(reopen: Start) -> None:
    run = reopen(cache_type="q8_0")
    run.answer(LONG)
    save(run)
    other = reopen(cache_type="f16")
    assert other.answer(LONG).n_cached == 0
    again = reopen(cache_type="q8_0")
    assert again.answer([*LONG, *text(9, 30)]).n_cached == 400
    assert max(again.errors()) <= TOLERANCE


def test_it_also_goes_back_to_the_messages_before(reopen: Start) -> None:
    """As when the analysis of the last answer is dropped: windows on the way are saved, too."""
    run = reopen()
    run.answer(LONG, n_answer=20)
    save(run)
    again = reopen()
    assert again.answer([*LONG[:300], *text(9, 30)], n_answer=20).n_cached == 300
    assert again.answer([*LONG, *text(9, 30)], n_answer=20).n_cached == 400
    assert max(again.errors()) <= TOLERANCE


def test_cached_prefixes_are_not_read(reopen: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    run = reopen()
    run.answer(LONG)
    save(run)
    again = reopen()
    monkeypatch.setattr(PrefixStore, "read", None)
    again.answer([*text(3, 10)])
    with pytest.raises(TypeError):
        again.answer([*LONG, 5])
    run.answer([*LONG, 5])


def test_running_sequences_keep_their_cells(reopen: Start) -> None:
    run = reopen()
    run.answer(LONG)
    save(run)
    again = reopen(n_seq=3)
    again.ask(text(3, 500), n_answer=50)
    again.answer(text(4, 100), n_answer=1)  # cached, and goes for the saved one
    again.ask([*LONG, 5], n_answer=5)
    again.finish()
    assert again.asked[2].n_cached == 400
    assert max(again.errors()) <= TOLERANCE


def test_idle_engine_saves_a_prefix_once(reopen: Start, tmp_path: Path) -> None:
    run = reopen()
    assert run.engine.archive is not None
    run.answer(text(2, 100))
    assert not run.engine.archive.save_one()  # too short
    first = run.answer(LONG)
    while run.engine.archive.save_one():
        pass
    (path,) = files(tmp_path)
    run.answer([*LONG, *first.answer, *text(5, 20)])
    assert not run.engine.archive.save_one()  # too little is new
    run.answer([*LONG, *first.answer, *text(5, 200)])
    while run.engine.archive.save_one():
        pass
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
    monkeypatch.setattr(prefix_cache, "_FEW_CELLS", 0)
    run = reopen(keep_s=0)
    first = run.answer(LONG, n_answer=20)
    run.answer(messages(90, 1), in_memory=True)  # which is never on disk
    second = run.answer(messages(50, 3))
    assert run.engine.stats().n_cells_cached == 419 + 103 + 303
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
    assert run.engine.archive is not None
    run.answer(LONG)
    run.answer(text(3, 90))
    assert 990 < (rest(run) or 0) <= 1000  # then it is to be looked at again
    assert run.engine.stats().n_cells_cached == 403 + 93
    files(tmp_path)[0].unlink()  # as another process may
    monkeypatch.setattr(run.engine._cache, "keep_s", 0)
    assert rest(run) is None
    assert run.engine.stats().n_cells_cached == 403 + 93


def test_few_cells_stay(reopen: Start) -> None:
    run = reopen(keep_s=0)
    run.answer(LONG)
    run.answer(text(3, 90))
    rest(run)
    assert run.engine.stats().n_cells_cached == 403 + 93


def test_only_the_owner_can_read(reopen: Start, tmp_path: Path) -> None:
    run = reopen()
    run.answer(LONG)
    save(run)
    (path,) = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_least_recently_used_files_go_first(reopen: Start, tmp_path: Path) -> None:
    run = reopen(n_seq=1)
    run.answer(LONG)
    assert run.engine.archive is not None
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


def test_larger_than_the_cap_is_not_saved(reopen: Start, tmp_path: Path) -> None:
    run = reopen(disk_bytes=10_000)
    run.answer(LONG)
    save(run)
    assert files(tmp_path) == []


def test_other_models_and_libraries_have_other_files(reopen: Start) -> None:
    run = reopen("one")
    run.answer(LONG)
    save(run)
    assert reopen("other").answer([*LONG, 5]).n_cached == 0
    assert reopen("one").answer([*LONG, 5]).n_cached == 400


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def change_state(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5000] ^= 1
    path.write_bytes(content)


def change_head(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[30] ^= 0xFF
    path.write_bytes(content)


def change_token(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(array("i", LONG[-10:]).tobytes())] ^= 1  # as if others were cached
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace(path: Path) -> None:
    path.write_bytes(b"something else\n" * 1000)


@pytest.mark.parametrize(
    "damage", [cut_off, change_state, change_head, change_token, empty, replace]
)
def test_damaged_file_is_ignored_and_removed(
    reopen: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    run = reopen()
    run.answer(LONG)
    save(run)
    damage(files(tmp_path)[0])
    again = reopen()
    assert again.answer([*LONG, 5]).n_cached == 0
    assert files(tmp_path) == []
    assert "removed" in caplog.text
    assert max(again.errors()) <= TOLERANCE


def test_leftover_of_a_killed_writer_is_removed(reopen: Start, tmp_path: Path) -> None:
    run = reopen()
    run.answer(LONG)
    save(run)
    leftover = files(tmp_path)[0].with_suffix(".123.partial")
    leftover.write_bytes(b"half")
    reopen()
    assert not leftover.exists()


def test_another_engine_with_the_same_process_id_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two containers that share a folder."""
    tokens, state = array("i", range(300)), np.arange(64, dtype=np.uint8)
    (store, *others), rename = (
        [PrefixStore(tmp_path, "key", 1 << 20) for _ in range(2)],
        Path.replace,
    )

    def rename_later(path: Path, target: Path) -> Path:
        while others:
            others.pop().write(tokens, 1, state, [])
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", rename_later)
    store.write(tokens, 1, state, [])
    saved, n_tokens = PrefixStore(tmp_path, "key", 1 << 20).find(tokens, 300)
    assert saved is not None
    assert n_tokens == 300
    assert np.array_equal(store.read(saved)[0], state)


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
