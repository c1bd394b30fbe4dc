"""NVIDIA's wheels for Windows, by their tables of contents: the index serves parts of a file."""

import io
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import cuda_toolkit
import httpx
import pytest
from environments import program_of

ROOT = Path(__file__).parents[2]
FOLDER = "nvidia/cu13/bin/x86_64"
DLLS = frozenset(
    {
        "cudart64_13.dll",  # it, cublas64_13.dll and the driver's nvcuda.dll are llama.cpp's
        "cublas64_13.dll",
        "cublasLt64_13.dll",  # imported by cublas64_13.dll, next to Windows' own alone
        "nvrtc64_130_0.dll",  # loaded by cublasLt64_13.dll, by this name
        "nvrtc-builtins64_134.dll",  # loaded by nvrtc64_130_0.dll
    }
)
INDEX = "https://pypi.org/simple"


class RemoteFile(io.RawIOBase):
    """A file of a web server, of which only the parts that are read are fetched."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client, self._url, self._at = client, url, 0
        self._size = int(client.head(url).raise_for_status().headers["content-length"])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        wanted = {"Range": f"bytes={self._at}-{end - 1}"}
        part = self._client.get(self._url, headers=wanted).raise_for_status().content
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(follow_redirects=True, timeout=60) as made:
        yield made


def contents(client: httpx.Client, requirement: str) -> set[str]:
    """Return the names in a requirement's wheels for 64-bit Windows."""
    uv = program_of(ROOT / ".venv", "uv")
    command = [uv, "pip", "compile", "-", "--python-platform", "windows", "--no-header", "-q"]
    pinned = subprocess.run(command, input=requirement, text=True, capture_output=True, check=True)
    names: set[str] = set()
    for package, version in re.findall(r"^(nvidia-[\w-]+)==(\S+)", pinned.stdout, re.M):
        accepted = {"Accept": "application/vnd.pypi.simple.v1+json"}
        files = client.get(f"{INDEX}/{package}/", headers=accepted).raise_for_status().json()
        url = next(
            file["url"]
            for file in files["files"]
            if file["filename"].endswith("win_amd64.whl") and f"-{version}-" in file["filename"]
        )
        with zipfile.ZipFile(io.BufferedReader(RemoteFile(client, url), 2**16)) as wheel:
            names |= set(wheel.namelist())
    return names


@pytest.mark.nightly
def test_the_extra_brings_the_dlls_of_windows(client: httpx.Client) -> None:
    names = contents(client, cuda_toolkit.RUNTIME)
    assert {f"{FOLDER}/{name}" for name in DLLS} <= names


@pytest.mark.nightly
def test_a_build_on_windows_has_the_compiler_and_lacks_one_library(client: httpx.Client) -> None:
    names = contents(client, cuda_toolkit.COMPILER)
    parts = {"bin/nvcc.exe", "bin/ptxas.exe", "nvvm/bin/cicc.exe", "include/crt/host_config.h"}
    parts |= {"include/cublas_v2.h", "lib/x64/cudart.lib", "lib/x64/cuda.lib"}
    assert {f"nvidia/cu13/{part}" for part in parts} <= names
    # Once it is there, cuda_toolkit need not make it.
    assert not any(name.endswith("/cublas.lib") for name in names)
