"""A file that a living process makes is not garbage, however old it looks, until that has died."""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from convert import convert_checkpoint
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import (
    BlobWriter,
    Leftover,
    find_garbage,
)
from tests.conftest import wait_until
from tests.convert.tiny import write_tiny

OTHER_DISK = Path("/dev/shm")
UPLOAD = """
import sys
from pathlib import Path
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import BlobWriter
with BlobWriter("sha256:" + "0" * 64, Settings(home=Path(sys.argv[1]))) as blob:
    blob.write(b"x" * 100_000)
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


def garbage(settings: Settings) -> list[Leftover]:
    """Find garbage among files that seem to be from 1970."""
    for path in settings.models_dir.rglob("*"):
        os.utime(path, (0, 0))
    return find_garbage(settings)


def test_an_upload_that_waits(settings: Settings) -> None:
    command = [sys.executable, "-c", UPLOAD, str(settings.home)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert garbage(settings) == []
    with BlobWriter(f"sha256:{hashlib.sha256(b'y').hexdigest()}", settings):
        pass  # another upload sweeps
    assert garbage(settings) == []
    assert [path.suffix for path in (settings.models_dir / "blobs").iterdir()] == [".part"]
    process.kill()
    process.communicate()
    (found,) = garbage(settings)
    assert found.kind == "blob"
    found.remove()
    assert garbage(settings) == []


@contextmanager
def names_locked(settings: Settings) -> Iterator[None]:
    """Keep changes of names waiting, as a slow disk does."""
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(settings.cache_dir / "models.lock"):
        yield


MAKE = """
import sys
from pathlib import Path
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import add_model
home, file = map(Path, sys.argv[1:])
add_model("mine", file, Settings(home=home))
"""


@pytest.mark.skipif(not OTHER_DISK.is_dir(), reason="needs another file system")
def test_weights_that_are_copied_for_hours(tmp_path: Path, settings: Settings) -> None:
    """Two files on a disk without links: the first waits while the second is copied."""
    with tempfile.TemporaryDirectory(dir=OTHER_DISK) as folder:
        source = write_tiny(tmp_path / "tiny")
        parts = convert_checkpoint(source, Path(folder) / "m.gguf", max_shard_bytes=20_000)
        weights = settings.models_dir / "weights"
        with names_locked(settings):
            command = [sys.executable, "-c", MAKE, str(settings.home), str(parts[0])]
            process = subprocess.Popen(command)
            wait_until(lambda: list(settings.models_dir.glob("*.part")))
            found = find_garbage(settings, quiet_s=-1)
            assert [each for each in found if each.kind == "weights"] == []
            process.kill()
            process.wait()
        found = find_garbage(settings, quiet_s=-1)
        left = {each.path for each in found if each.kind == "weights"}
        assert left == set(weights.iterdir())
        assert len(left) == len(parts) > 1
