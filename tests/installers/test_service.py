"""The systemd unit. No systemd for users runs where tests run, so systemctl only writes down."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import service
from receipt import Places, Receipt
from steps import Log

pytestmark = pytest.mark.quick

SYSTEMCTL = '#!/bin/sh\necho "$*" >> "$HOME/called"\n[ ! -e "$HOME/broken" ] || exit 1\n'


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    home = tmp_path / "my home 100%"  # systemd has its own way with spaces and %
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "systemctl").write_text(SYSTEMCTL)
    (home / "bin" / "systemctl").chmod(0o755)
    (home / "bin" / "gptoss").write_text("#!/bin/sh\n")
    (home / "bin" / "gptoss").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/bin:/usr/bin:/bin")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    return Places(home / "app", home / "bin", home / "install.log")


def test_unit_comes_and_goes(places: Places) -> None:
    made = Receipt("1", "env-1", "")
    log = Log(places.log)
    assert "systemctl --user status gptoss" in service.install(log, places, made)
    unit = Path.home() / ".config/systemd/user/gptoss.service"
    assert made.files == [str(unit)]
    assert made.has_service
    if analyze := shutil.which("systemd-analyze", path="/usr/bin:/bin"):
        environment = os.environ | {"XDG_RUNTIME_DIR": str(places.app.parent)}
        command = [analyze, "verify", "--user", "--man=no", unit]
        subprocess.run(command, env=environment, check=True)
    service.remove(log)
    assert (Path.home() / "called").read_text().splitlines() == [
        "--user show-environment",
        "--user daemon-reload",
        "--user enable --quiet gptoss.service",
        "--user restart gptoss.service",
        "--user disable --quiet --now gptoss.service",
    ]


def test_without_systemd_nothing_is_written(places: Places) -> None:
    (Path.home() / "broken").touch()
    made = Receipt("1", "env-1", "")
    assert "systemd has no user session" in service.install(Log(places.log), places, made)
    assert not made.has_service
    assert not (Path.home() / ".config").exists()
