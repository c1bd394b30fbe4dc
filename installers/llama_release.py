"""Get llama.cpp's own release of exactly the build that gptoss is written for.

Its tag and commit stand in `gptoss_local/engine/llama/release.json`, with the digests of its files
once a maintainer has run `pin.py`. Without those, GitHub says them.
"""

import contextlib
import hashlib
import http.client
import json
import re
import shutil
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from environments import pip
from steps import Log, SetupError

ROOT = Path(__file__).resolve().parents[1]
API = "https://api.github.com/repos/ggml-org/llama.cpp/releases/tags"
FILE = "gptoss_local/engine/llama/release.json"
_HINT = "Without a network, or behind a proxy? Set HTTPS_PROXY. Run this again to resume."
_LIMIT_HINT = "Run this again in an hour, or name a mirror of GitHub's API with --llama-releases."
_NETWORK = (OSError, http.client.HTTPException, ValueError)  # the last: of a URL, or of JSON
_NO_ARCHIVE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
_LIBRARY = re.compile(r"[\w.+-]+\.(dll|so(\.\d+)*)", re.ASCII)
_TIMEOUT_S, _SAY_S = 60, 5.0
_BLOCK_BYTES = 2**20


class UnreachableError(SetupError):
    """The network's fault, or GitHub's: no other release would be reached, either."""


@dataclass(frozen=True)
class Build:
    """A build of llama.cpp by its tag, `b11312`, and the llama-cpp-python that binds it."""

    version: str
    build: str
    commit: str
    digests: dict[str, str]  # sha256 by file name; empty until they are pinned


def own_build(root: Path = ROOT) -> Build:
    return Build(**json.loads((root / FILE).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Asset:
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
    """Return the files in `folder` with the digest of each; the network only brings what lacks."""
    kept = {name: folder / f"{name}.sha256" for name in wanted}  # the digests of earlier downloads
    digests = {n: path.read_text() for n, path in kept.items() if path.is_file()} | build.digests
    found: dict[str, Asset] = {}
    for name in wanted:
        if _is_whole(folder / name, digests.get(name)):
            continue
        found = found or listed(api, build.build)
        if name not in found:
            raise SetupError(f"llama.cpp's release {build.build} has no {name}.")
        asset = found[name]
        if build.digests.get(name, asset.digest) != asset.digest:
            raise SetupError(f"{asset.url} is not the file that was pinned.")
        if not _is_whole(folder / name, asset.digest):
            log.say(f"fetching {name}, {asset.size / 1e6:.0f} MB")
            _download(log, asset, folder / name)
        kept[name].write_text(asset.digest)
        digests[name] = asset.digest
    return {folder / name: digests[name] for name in wanted}


def listed(api: str, tag: str) -> dict[str, Asset]:
    """Return the files of a release by name, as GitHub's API has them."""
    try:
        with _opened(f"{api}/{tag}") as answer:
            assets = json.load(answer)["assets"]
        return {  # GitHub gives no digest to a file that is still being uploaded
            a["name"]: Asset(a["browser_download_url"], str(a["digest"])[7:], int(a["size"]))
            for a in assets
            if str(a["digest"]).startswith("sha256:")
        }
    except (*_NETWORK, KeyError, TypeError) as error:
        said = _said(error)
        hint = _LIMIT_HINT if "rate limit" in said.lower() else _HINT
        reason = f"{api}/{tag} does not list llama.cpp's release: {said}"
        raise UnreachableError(reason, hint) from error


def _opened(url: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "gptoss"} | (headers or {}))
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    return answer


def _said(error: Exception) -> str:
    """Return an error's text, with the message in the JSON of an answer of GitHub."""
    if isinstance(error, urllib.error.HTTPError):
        with contextlib.suppress(*_NETWORK, KeyError, TypeError):
            return f"{error}: {json.load(error)['message']}"
    return str(error)


def _download(log: Log, asset: Asset, path: Path) -> None:
    """Fetch a file, resuming where a connection broke; it takes its name once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, said_at = path.with_name(f"{path.name}.partial"), time.monotonic()
    with partial.open("ab") as file:
        while (start := file.tell()) < asset.size:
            try:
                for block in _blocks(asset, start):
                    file.write(block[: asset.size - file.tell()])
                    if time.monotonic() - said_at >= _SAY_S:
                        said_at = time.monotonic()
                        log.say(f"  {100 * file.tell() // asset.size} % of it")
                if file.tell() == start:
                    raise UnreachableError(f"{asset.url} broke off.", _HINT)
            except UnreachableError:
                if file.tell() == start:  # else a connection brings more, if slowly
                    raise
    if not _is_whole(partial, asset.digest):
        partial.unlink()
        raise SetupError(f"{asset.url} is not the file that was released.", "Run this again.")
    partial.replace(path)


def _blocks(asset: Asset, start: int) -> Iterator[bytes]:
    """Yield a file from a byte on; the errors of the network alone are raised as such."""
    try:
        with _opened(asset.url, {"Range": f"bytes={start}-"} if start else {}) as answer:
            whole = answer.headers.get("Content-Range") or answer.headers.get("Content-Length")
            if whole and whole.rpartition("/")[2] not in (str(asset.size), "*"):
                said = "of a proxy, perhaps: it has another size"
                raise UnreachableError(f"{asset.url} answers with another file, {said}.", _HINT)
            skipped = 0 if answer.status == 206 else start  # it may have ignored the range
            while block := answer.read(_BLOCK_BYTES):
                yield block[skipped:]
                skipped = max(0, skipped - len(block))
    except _NETWORK as error:
        reason = f"{asset.url} could not be fetched: {_said(error)}"
        raise UnreachableError(reason, _HINT) from error


def _is_whole(path: Path, digest: str | None) -> bool:
    return digest is not None and path.is_file() and sha256(path) == digest


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archives: list[Path], folder: Path) -> None:
    """Put the libraries of these archives into a folder of their own, and nothing else.

    On Linux a library has three names, of which two are links: copies would be loaded twice.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for archive in archives:
        try:
            for name, content in _libraries(archive):
                (folder / name).unlink(missing_ok=True)
                if isinstance(content, str):
                    (folder / name).symlink_to(content)
                    continue
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
        except _NO_ARCHIVE as error:
            raise SetupError(f"{archive.name} cannot be unpacked: {error}") from error
    if not any(path.is_file() for path in folder.glob("*llama.*")):
        raise SetupError(f"{archives[0].name} has no library of llama.cpp.")


def _libraries(archive: Path) -> Iterator[tuple[str, IO[bytes] | str]]:
    """Yield names without folders, and what each has: bytes, or the name that it links to."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for path in packed.namelist():
                if _LIBRARY.fullmatch(name := re.split(r"[/\\]", path)[-1]):
                    with packed.open(path) as file:
                        yield name, file
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not _LIBRARY.fullmatch(name := member.name.rpartition("/")[2]):
                continue
            if member.issym():
                if _LIBRARY.fullmatch(member.linkname):
                    yield name, member.linkname
            elif content := tar.extractfile(member):  # None for what is no file
                yield name, content


def binding(log: Log, python: Path, version: str, folder: Path) -> Path:
    """Return llama-cpp-python's wheel without a library, made by pip with a backend of ours."""
    wheel = folder / f"llama_cpp_python-{version}-py3-none-any.whl"
    if wheel.is_file():
        return wheel
    with tempfile.TemporaryDirectory() as made:
        backend = Path(made) / "scikit_build_core" / "build.py"  # as its pyproject.toml has it
        backend.parent.mkdir()
        shutil.copy(Path(__file__).with_name("binding_wheel.py"), backend)
        options = ("--no-deps", "--no-build-isolation", "--no-binary=llama-cpp-python")
        what = (*options, "--no-cache-dir", "--wheel-dir", made, f"llama-cpp-python=={version}")
        pip(log, python, "wheel", *what, doing="get llama-cpp-python", env={"PYTHONPATH": made})
        shutil.move(Path(made) / wheel.name, wheel.with_suffix(".partial"))
    return wheel.with_suffix(".partial").replace(wheel)
