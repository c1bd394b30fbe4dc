"""A checkpoint becomes a GGUF while it arrives from a local hub."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from convert import convert_checkpoint
from gptoss_local.models.pulling.pull import pull_checkpoint
from tests.conftest import wait_until
from tests.convert.tiny import write_tiny
from tests.hub.conftest import no_account, short_waits  # noqa: F401
from tests.hub.server import Fault, HubServer, run_hub

REPO = "someone/gpt-oss-tiny"
N_SHARDS = 3


def ignore(what: str, done: int, total: int) -> None:
    pass


def read_folder(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "gpt-oss-tiny", n_shards=N_SHARDS)


@pytest.fixture
def hub(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with run_hub() as server:
        server.add(REPO, read_folder(checkpoint))
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def expected(checkpoint: Path, tmp_path: Path) -> bytes:
    target = tmp_path / "expected" / "m.gguf"
    target.parent.mkdir()
    convert_checkpoint(checkpoint, target)
    return target.read_bytes()


def test_the_same_bytes_as_from_a_folder_and_nothing_left(
    hub: HubServer, expected: bytes, tmp_path: Path
) -> None:
    target = tmp_path / "out" / "m.gguf"
    target.parent.mkdir()
    steps: dict[str, list[int]] = {}
    pull_checkpoint(
        REPO, target, progress=lambda what, done, total: steps.setdefault(what, []).append(done)
    )
    assert target.read_bytes() == expected
    assert list(target.parent.iterdir()) == [target]
    assert set(steps) == {"fetching config and tokenizer", "downloading", "convert"}
    assert all(done == sorted(done) for done in steps.values())


def test_original_layout(tmp_path: Path, hub: HubServer, expected: bytes) -> None:
    """Its tokenizer lies at the root of the repository."""
    original = write_tiny(tmp_path / "o", layout="original")
    files = read_folder(tmp_path / "gpt-oss-tiny")
    shown = {name: data for name, data in files.items() if "safetensors" not in name}
    hub.add(REPO, shown | {f"original/{n}": data for n, data in read_folder(original).items()})
    target = tmp_path / "m.gguf"
    pull_checkpoint(REPO, target, original=True, progress=ignore)
    assert target.read_bytes() == expected


def test_killed_and_continued(hub: HubServer, expected: bytes, tmp_path: Path) -> None:
    target = tmp_path / "m.gguf"
    command = [sys.executable, "-m", "gptoss_local", "convert", REPO, str(target)]
    last = f"model-{N_SHARDS:05d}-of-{N_SHARDS:05d}.safetensors"
    hub.strike(last, Fault(stall_after=100))
    process = subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL)
    journal = tmp_path / "m.gguf.journal"
    wait_until(lambda: journal.exists() and hub.sent[last])
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    hub.heal()
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=None)
    assert done.returncode == 0, done.stderr
    assert "convert: 100 %" in done.stderr
    assert target.read_bytes() == expected
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("m.gguf")] == ["m.gguf"]
