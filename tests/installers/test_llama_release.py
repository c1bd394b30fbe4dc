"""llama.cpp's own releases: found, fetched through faults, checked, and unpacked."""

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import llama_release
import pin
import pytest
from from_source import ROOT, pinned_version
from llama_release import Build
from steps import Log, SetupError

from tests.installers.github import BUILD, GitHub, github

NAME = f"llama-{BUILD}-bin-ubuntu-x64.tar.gz"
DATA = bytes(range(256)) * 20_000
PINNED = Build(**json.loads((ROOT / llama_release.FILE).read_text()))


@pytest.fixture
def server() -> Iterator[GitHub]:
    with github() as server:
        server.files[NAME] = DATA
        yield server


def fetch(server: GitHub, folder: Path, build: Build = PINNED) -> bytes:
    log = Log(folder / "log")
    ((path, digest),) = llama_release.fetch(log, build, [NAME], folder / "kept", server.api).items()
    assert digest == llama_release.sha256(path)
    return path.read_bytes()


def test_the_build_is_that_of_the_binding() -> None:
    assert PINNED.version == pinned_version((ROOT / "pyproject.toml").read_text())
    assert PINNED.build == BUILD


@pytest.mark.parametrize(
    ("way", "arch", "system", "names"),
    [
        ("cpu", "x64", "linux", "llama-b1-bin-ubuntu-x64.tar.gz"),
        ("vulkan", "arm64", "linux", "llama-b1-bin-ubuntu-vulkan-arm64.tar.gz"),
        (
            "cuda-12.8",
            "x64",
            "linux",
            "llama-b1-bin-ubuntu-cuda-12.8-x64.tar.gz "
            "cudart-llama-b1-bin-ubuntu-cuda-12.8-x64.tar.gz",
        ),
        ("cpu", "arm64", "win32", "llama-b1-bin-win-cpu-arm64.zip"),
        (
            "cuda-13.4",
            "x64",
            "win32",
            "llama-b1-bin-win-cuda-13.4-x64.zip cudart-llama-bin-win-cuda-13.4-x64.zip",
        ),
    ],
)
def test_names(way: str, arch: str, system: str, names: str) -> None:
    assert " ".join(llama_release.names("b1", way, arch, system)) == names


@pytest.mark.parametrize("has_ranges", [True, False])
def test_goes_on_where_a_connection_broke(server: GitHub, tmp_path: Path, has_ranges: bool) -> None:
    server.has_ranges, server.cut_after = has_ranges, 1_500_000
    with pytest.raises(SetupError, match=r"broke off|could not be fetched") as caught:
        fetch(server, tmp_path)
    assert "HTTPS_PROXY" in caught.value.hint
    assert fetch(server, tmp_path) == DATA
    assert server.asked[-1] == (NAME, 1_500_000 if has_ranges else 0)
    n_asked = len(server.asked)
    assert fetch(server, tmp_path) == DATA
    assert len(server.asked) == n_asked + 1  # the page alone


def test_what_was_not_released_is_not_kept(server: GitHub, tmp_path: Path) -> None:
    server.digests[NAME] = "0" * 64
    with pytest.raises(SetupError, match="is not the file that was released"):
        fetch(server, tmp_path)
    assert not list((tmp_path / "kept").iterdir())
    server.digests.clear()
    pinned = Build("1", BUILD, "", {NAME: "1" * 64})
    with pytest.raises(SetupError, match="is not the file that was pinned"):
        fetch(server, tmp_path, pinned)
    kept = tmp_path / "kept" / NAME
    kept.write_bytes(b"of another time")
    assert fetch(server, tmp_path) == DATA


def test_no_such_release_or_file(server: GitHub, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"does not list .* 404"):
        fetch(server, tmp_path, Build("1", "b9", "", {}))
    server.files.clear()
    with pytest.raises(SetupError, match=f"release {BUILD} has no {NAME}"):
        fetch(server, tmp_path)
    log = Log(tmp_path / "log")
    with pytest.raises(SetupError, match="does not list") as caught:
        llama_release.fetch(log, PINNED, [NAME], tmp_path, "http://127.0.0.1:1/tags")
    assert "Without a network" in caught.value.hint


def test_a_maintainer_pins_the_files(server: GitHub, tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    shutil.copy(ROOT / llama_release.FILE, path)
    server.files["llama-b11312-bin-macos-arm64.tar.gz"] = b"not ours"
    (line,) = pin.pin(path, server.api)
    assert line.endswith(NAME)
    pinned = Build(**json.loads(path.read_text()))
    assert list(pinned.digests) == [NAME]
    assert fetch(server, tmp_path, pinned) == DATA


def test_libraries_alone_are_unpacked(tmp_path: Path) -> None:
    archive, runtime, folder = tmp_path / "a.tar.gz", tmp_path / "b.zip", tmp_path / "lib"
    with tarfile.open(archive, "w:gz") as tar:
        for name, link in (
            ("llama-b1/libllama.so.0.5.0", ""),
            ("llama-b1/libllama.so", "libllama.so.0.5.0"),
            ("llama-b1/llama-server", ""),
            ("llama-b1/libevil.so", "../../evil"),
            ("../../libup.so", ""),
        ):
            member = tarfile.TarInfo(name)
            member.size = 0 if link else 3
            member.type, member.linkname = (tarfile.SYMTYPE, link) if link else (b"0", "")
            tar.addfile(member, None if link else io.BytesIO(b"lib"))
    with zipfile.ZipFile(runtime, "w") as packed:
        packed.writestr("x/cudart64_13.dll", b"dll")
        packed.writestr("../../llama-server.exe", b"exe")
    folder.mkdir()
    (folder / "libold.so").touch()
    llama_release.unpack([archive, runtime], folder)
    names = {"libllama.so", "libllama.so.0.5.0", "libup.so", "cudart64_13.dll"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "libllama.so").readlink() == Path("libllama.so.0.5.0")
    assert not (tmp_path.parent / "libup.so").exists()
