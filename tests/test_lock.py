"""File systems without locks, such as NFS without lockd, SMB and FUSE."""

import errno
import sys
from pathlib import Path

import pytest

from convert import convert_checkpoint
from convert.journal import Journal
from gptoss_local.base.errors import ConvertError, DownloadError
from gptoss_local.base.settings import load_settings
from gptoss_local.models.hub.folder import DownloadFolder
from gptoss_local.models.store import add_model, delete_model, find_model
from gptoss_local.models.store.manifests import changing
from tests.convert.tiny import write_tiny

if sys.platform == "win32":
    pytest.skip("there is no flock", allow_module_level=True)
import fcntl

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_each_lock_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(number, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setenv("GPTOSS_HOME", str(tmp_path / "home"))
    settings = load_settings()
    settings.cache_dir.mkdir(parents=True, exist_ok=True)

    target = tmp_path / "tiny.gguf"
    journal = Journal(target)
    with pytest.raises(ConvertError, match="Another gptoss is converting"):
        Journal(target)
    journal.close()
    convert_checkpoint(write_tiny(tmp_path / "gpt-oss-tiny"), target)
    assert sorted(path.name for path in tmp_path.glob("tiny*")) == ["tiny.gguf"]

    with changing(settings), pytest.raises(TimeoutError), changing(settings, timeout_s=0.1):
        pass
    add_model("mine", target, settings)
    assert find_model("mine", settings).path is not None
    delete_model("mine", settings)

    folder = DownloadFolder(tmp_path / "download")
    with folder.locked(), pytest.raises(DownloadError, match="Another process"), folder.locked():
        pass
