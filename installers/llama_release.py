"""Get llama.cpp's own release of exactly the build that gptoss is written for.

Its tag and commit stand in `gptoss_local/engine/llama/release.json`, with the digests of its files
once a maintainer has run `pin.py`. Without those, GitHub says them.
"""

import base64
import hashlib
import http.client
import json
import shutil
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from environments import pip
from steps import Log, SetupError

API = "https://api.github.com/repos/ggml-org/llama.cpp/releases/tags"
FILE = "gptoss_local/engine/llama/release.json"
NETWORK_HINT = "Without a network, or behind a proxy? Set HTTPS_PROXY. Run this again to resume."
_TIMEOUT_S = 60
_BLOCK_BYTES = 2**20
_SAY_S = 5.0


@dataclass(frozen=True)
class Build:
    """One build of llama.cpp, and the version of llama-cpp-python that binds it.

    Attributes:
        version: Of llama-cpp-python.
        build: llama.cpp's tag, `b11312`.
        digests: sha256 by file name; empty until they are pinned.
    """

    version: str
    build: str
    commit: str
    digests: dict[str, str]


@dataclass(frozen=True)
class Asset:
    """One file of a release: its address, its sha256 and its size in bytes."""

    url: str
    digest: str
    size: int


def names(build: str, way: str, arch: str, system: str = sys.platform) -> list[str]:
    """Return the names of a release's files, by llama.cpp's release.yml: its own, and CUDA's."""
    if system == "win32":
        files = [f"llama-{build}-bin-win-{way}-{arch}.zip"]
        cuda = f"cudart-llama-bin-win-{way}-{arch}.zip"
    else:
        kind = "" if way == "cpu" else f"{way}-"
        files = [f"llama-{build}-bin-ubuntu-{kind}{arch}.tar.gz"]
        cuda = f"cudart-{files[0]}"
    return [*files, cuda] if way.startswith("cuda") else files


def fetch(
    log: Log, build: Build, wanted: list[str], folder: Path, api: str = API
) -> dict[Path, str]:
    """Return the files in `folder`, downloaded unless they are there, with the digest of each."""
    found = listed(api, build.build)
    for name in wanted:
        if name not in found:
            raise SetupError(f"llama.cpp's release {build.build} has no {name}.", "")
        if build.digests.get(name, found[name].digest) != found[name].digest:
            raise SetupError(f"{found[name].url} is not the file that was pinned.", "")
    for name in wanted:
        path, asset = folder / name, found[name]
        if not (path.is_file() and sha256(path) == asset.digest):
            log.say(f"fetching {name}, {asset.size / 1e6:.0f} MB")
            _download(log, asset, path)
    return {folder / name: found[name].digest for name in wanted}


def listed(api: str, tag: str) -> dict[str, Asset]:
    """Return the files of a release by name, as GitHub's API has them."""
    request = urllib.request.Request(f"{api}/{tag}", headers={"User-Agent": "gptoss"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            assets = json.load(answer)["assets"]
        return {
            a["name"]: Asset(
                a["browser_download_url"], a["digest"].removeprefix("sha256:"), int(a["size"])
            )
            for a in assets
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{api}/{tag} does not list llama.cpp's release: {error}"
        raise SetupError(reason, NETWORK_HINT) from error


def _download(log: Log, asset: Asset, path: Path) -> None:
    """Fetch a file, resuming what an earlier run left; it takes its name once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("ab") as file:
            if file.tell() < asset.size:
                _append(log, asset, file)
    except (OSError, http.client.HTTPException) as error:
        raise SetupError(f"{asset.url} could not be fetched: {error}", NETWORK_HINT) from error
    if partial.stat().st_size < asset.size:
        raise SetupError(f"{asset.url} broke off.", NETWORK_HINT)
    if sha256(partial) != asset.digest:
        partial.unlink()
        raise SetupError(f"{asset.url} is not the file that was released.", "Run this again.")
    partial.replace(path)


def _append(log: Log, asset: Asset, file: IO[bytes]) -> None:
    start, said_at = file.tell(), time.monotonic()
    headers = {"User-Agent": "gptoss", "Range": f"bytes={start}-"} if start else {}
    request = urllib.request.Request(asset.url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        if start and answer.status != 206:
            file.truncate(0)
        while block := answer.read(_BLOCK_BYTES):
            file.write(block)
            if time.monotonic() - said_at >= _SAY_S:
                said_at = time.monotonic()
                log.say(f"  {100 * file.tell() // asset.size} % of {asset.size / 1e6:.0f} MB")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archives: Iterable[Path], folder: Path) -> None:
    """Put the libraries of these archives into a folder of their own, and nothing else.

    On Linux a library has three names, of which two are links: copies would be loaded twice.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for archive in archives:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as packed:
                for name in packed.namelist():
                    if name.endswith(".dll"):
                        (folder / PurePosixPath(name).name).write_bytes(packed.read(name))
            continue
        with tarfile.open(archive) as tar:
            for member in tar:
                path = folder / PurePosixPath(member.name).name
                if ".so" not in path.suffixes:
                    continue
                if member.issym() and "/" not in member.linkname:
                    path.symlink_to(member.linkname)
                elif content := tar.extractfile(member) if member.isfile() else None:
                    with path.open("wb") as file:
                        shutil.copyfileobj(content, file)


def binding(log: Log, python: Path, version: str, folder: Path) -> Path:
    """Return llama-cpp-python's wheel without a library; pip could make it with a compiler only."""
    name = f"llama_cpp_python-{version}"
    wheel = folder / f"{name}-py3-none-any.whl"
    if wheel.is_file():
        return wheel
    options = ("--no-deps", "--no-binary", "llama-cpp-python", "--dest", folder)
    wanted = f"llama-cpp-python=={version}"
    pip(log, python, "download", *options, wanted, doing="download llama-cpp-python")
    source = folder / f"{name}.tar.gz"
    partial = wheel.with_suffix(".partial")
    with tarfile.open(source) as tar, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as packed:
        record = f"{name}.dist-info/RECORD"
        lines = [f"{record},,"]
        for path, data in _files(tar, name):
            packed.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}")
        packed.writestr(record, "\n".join(lines) + "\n")
    partial.replace(wheel)
    source.unlink()
    return wheel


def _files(tar: tarfile.TarFile, name: str) -> Iterator[tuple[str, bytes]]:
    yield (
        f"{name}.dist-info/WHEEL",
        b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    for member in tar:
        path = member.name.removeprefix(f"{name}/")
        if content := tar.extractfile(member) if member.isfile() else None:
            if path == "PKG-INFO":
                yield f"{name}.dist-info/METADATA", content.read()
            elif path.startswith("llama_cpp/") and path.endswith((".py", "py.typed")):
                yield path, content.read()
