"""llama.cpp's own releases: found, fetched through faults, checked, and unpacked."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import binding_wheel
import llama_release
import pin
import pytest
from llama_release import ROOT, Build, UnreachableError
from steps import Log, SetupError

from tests.installers.github import BUILD, GitHub, github

NAME = f"llama-{BUILD}-bin-ubuntu-x64.tar.gz"
DATA = bytes(range(256)) * 20_000
PINNED = llama_release.own_build()
LIMIT = b'{"message": "API rate limit exceeded for 192.0.2.1. (But here\'s the good news: ..."}'


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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"llama-cpp-python=={PINNED.version}" in project["dependencies"]
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
@pytest.mark.parametrize("cuts", [[1], [1_500_000], [1, 1, 2_000_000], [len(DATA) - 1]])
def test_goes_on_where_a_connection_broke(
    server: GitHub, tmp_path: Path, has_ranges: bool, cuts: list[int]
) -> None:
    server.has_ranges, server.cuts = has_ranges, list(cuts)
    if has_ranges or len(cuts) == 1:
        assert fetch(server, tmp_path) == DATA
    else:  # the second connection brought no more than the first one: it is the network
        with pytest.raises(UnreachableError, match="broke off"):
            fetch(server, tmp_path)
        assert fetch(server, tmp_path) == DATA
    assert server.asked[-1] == (NAME, sum(cuts) if has_ranges else 0)
    n_asked = len(server.asked)
    server.page_answer = (503, b"")
    assert fetch(server, tmp_path) == DATA  # what is here and whole needs no network
    assert len(server.asked) == n_asked


def test_resumes_what_an_earlier_run_left(server: GitHub, tmp_path: Path) -> None:
    server.cuts = [1_000_000, 0]
    with pytest.raises(UnreachableError, match="broke off") as caught:
        fetch(server, tmp_path)
    assert "HTTPS_PROXY" in caught.value.hint
    assert fetch(server, tmp_path) == DATA
    assert server.asked[-1] == (NAME, 1_000_000)


def test_files_of_another_host(server: GitHub, tmp_path: Path) -> None:
    with github() as other:
        other.files[NAME], other.cuts = DATA, [3]
        server.redirects_to = f"http://localhost:{other.server_port}"
        assert fetch(server, tmp_path) == DATA
        assert other.asked == [(NAME, 0), (NAME, 3)]
        server.redirects_to = "http://127.0.0.1:1"
        with pytest.raises(UnreachableError, match="could not be fetched"):
            fetch(server, tmp_path / "again")


def test_the_page_of_a_proxy_is_not_taken_for_the_file(server: GitHub, tmp_path: Path) -> None:
    page = server.page()
    server.files[NAME] = b"<html>Please log in"
    digest = hashlib.sha256(DATA).hexdigest()
    server.page_answer = (200, page)
    with pytest.raises(UnreachableError, match="another file"):
        fetch(server, tmp_path)
    assert digest in page.decode()
    server.files[NAME] = DATA
    assert fetch(server, tmp_path) == DATA


@pytest.mark.parametrize(
    ("status", "body", "said", "hint"),
    [
        (403, LIMIT, "403.* rate limit exceeded for 192", "in an hour"),
        (429, b"<html>slow down", "429", "HTTPS_PROXY"),
        (200, b"<html>Please log in", "does not list", "HTTPS_PROXY"),
        (200, b'{"assets": null}', "does not list", "HTTPS_PROXY"),
        (200, b'{"message": "Not Found"}', "does not list", "HTTPS_PROXY"),
        (403, b"\xff", "403", "HTTPS_PROXY"),
    ],
)
def test_github_does_not_list_them(
    server: GitHub, tmp_path: Path, status: int, body: bytes, said: str, hint: str
) -> None:
    server.page_answer = (status, body)
    with pytest.raises(UnreachableError, match=said) as caught:
        fetch(server, tmp_path)
    assert hint in caught.value.hint
    server.page_answer, server.cuts_page, server.cuts = None, True, [20]
    with pytest.raises(UnreachableError, match="does not list"):
        fetch(server, tmp_path)
    assert fetch(server, tmp_path) == DATA


def test_a_proxy_is_asked_and_none_else(
    server: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "127.0.0.1:1")
    monkeypatch.setattr("urllib.request._opener", None)  # it knows the variables of the first call
    with pytest.raises(UnreachableError, match="refused") as caught:
        fetch(server, tmp_path)
    assert "HTTPS_PROXY" in caught.value.hint
    assert server.asked == []


def test_a_file_that_is_still_being_uploaded_is_not_there(server: GitHub, tmp_path: Path) -> None:
    page = json.loads(server.page())
    page["assets"].append({"name": "llama-new.zip", "digest": None, "state": "starter"})
    server.page_answer = (200, json.dumps(page).encode())
    assert fetch(server, tmp_path) == DATA


def test_a_disk_is_no_network(server: GitHub, tmp_path: Path) -> None:
    """What cannot be written is said as such, and no other way to llama.cpp is tried."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / f"{NAME}.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        fetch(server, tmp_path)


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
    path = tmp_path / llama_release.FILE
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / llama_release.FILE, path)
    server.files["llama-b11312-bin-macos-arm64.tar.gz"] = b"not ours"
    (line,) = pin.pin(tmp_path, server.api)
    assert line.endswith(NAME)
    pinned = llama_release.own_build(tmp_path)
    assert list(pinned.digests) == [NAME]
    assert fetch(server, tmp_path, pinned) == DATA


def test_a_binding_has_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("llama_cpp/__init__.py", "llama_cpp/py.typed", "llama_cpp/lib/libllama.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "PKG-INFO").write_text("Name: llama_cpp_python\nVersion: 1.2\n")
    monkeypatch.chdir(tmp_path)
    wheel = binding_wheel.build_wheel(str(tmp_path))
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", tmp_path / "site"]
    subprocess.run([*pip, tmp_path / wheel], check=True, capture_output=True)
    assert wheel == "llama_cpp_python-1.2-py3-none-any.whl"
    installed = {path.name for path in (tmp_path / "site" / "llama_cpp").iterdir()}
    assert installed - {"__pycache__"} == {"__init__.py", "py.typed"}


def tar_of(path: Path, *members: tuple[str, str]) -> Path:
    """Pack files of three bytes, and links to what is named."""
    with tarfile.open(path, "w:gz") as tar:
        for name, link in members:
            member = tarfile.TarInfo(name)
            member.size = 0 if link else 3
            member.type, member.linkname = (tarfile.SYMTYPE, link) if link else (b"0", "")
            tar.addfile(member, None if link else io.BytesIO(b"lib"))
    return path


def zip_of(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name in names:
            packed.writestr(name, b"dll")
    return path


def test_libraries_alone_are_unpacked(tmp_path: Path) -> None:
    folder, evil = tmp_path / "lib", tmp_path / "evil"
    archive = tar_of(
        tmp_path / "a.tar.gz",
        ("llama-b1/libllama.so.0.5.0", ""),
        ("llama-b1/libllama.so", "libllama.so.0.5.0"),
        ("llama-b1/libllama.so", "libllama.so.0.5.0"),  # packed twice
        ("llama-b1/llama-server", ""),
        ("llama-b1/libevil.so", "../../evil"),
        ("libabsolute.so", str(evil)),
        ("libabsolute.so", ""),
        ("/etc/libroot.so", ""),
        ("../../libup.so", ""),
    )
    runtime = zip_of(
        tmp_path / "b.zip",
        *("x/cudart64_13.dll", "../../llama-server.exe", "..\\..\\up.dll"),
        *("C:drive.dll", "x/C:stream.dll:y.dll", "nul\\", "x/.dll.txt"),
    )
    folder.mkdir()
    (folder / "libold.so").touch()
    llama_release.unpack([archive, runtime], folder)
    names = {"libllama.so", "libllama.so.0.5.0", "libup.so", "libroot.so", "libabsolute.so"}
    assert {path.name for path in folder.iterdir()} == names | {"cudart64_13.dll", "up.dll"}
    assert (folder / "libllama.so").readlink() == Path("libllama.so.0.5.0")
    assert not (folder / "libabsolute.so").is_symlink()
    assert not evil.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"a.tar.gz", "b.zip", "lib"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no archive", "cannot be unpacked"),
        (DATA, "cannot be unpacked"),
        (None, "has no library of llama"),
    ],
)
@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_archives_without_llama_cpp(
    tmp_path: Path, name: str, data: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if data:
        path.write_bytes(data)
    elif name.endswith("zip"):
        zip_of(path, "ggml.dll", "llama-server.exe")
    else:
        tar_of(path, ("x/libggml.so", ""), ("x/libllama.so", "libllama.so.0"))  # of a lost file
    with pytest.raises(SetupError, match=said):
        llama_release.unpack([path], tmp_path / "lib")


def test_an_archive_that_ends_too_early(tmp_path: Path) -> None:
    for whole in (
        tar_of(tmp_path / "a.tar.gz", ("libllama.so", "")),
        zip_of(tmp_path / "a.zip", "llama.dll"),
    ):
        whole.write_bytes(whole.read_bytes()[:-40])
        with pytest.raises(SetupError, match="cannot be unpacked"):
            llama_release.unpack([whole], tmp_path / "lib")
