"""NVIDIA's wheels: usable for a linker and for llama.cpp, and the contents of those for Windows."""

import io
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import cuda_toolkit
import httpx
import pytest
from environments import program_of
from from_source import ROOT
from steps import SetupError

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
def test_the_packages_bring_the_dlls_and_the_compiler_and_lack_one_library() -> None:
    with httpx.Client(follow_redirects=True, timeout=60) as client:
        runtime = contents(client, cuda_toolkit.RUNTIME)
        compiler = contents(client, cuda_toolkit.COMPILER)
    assert {f"{FOLDER}/{name}" for name in DLLS} <= runtime
    parts = {"bin/nvcc.exe", "bin/ptxas.exe", "nvvm/bin/cicc.exe", "include/crt/host_config.h"}
    parts |= {"include/cublas_v2.h", "lib/x64/cudart.lib", "lib/x64/cuda.lib"}
    assert {f"nvidia/cu13/{part}" for part in parts} <= compiler
    # Once it is there, cuda_toolkit need not make it.
    assert not any(name.endswith("/cublas.lib") for name in compiler)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder as pip leaves it: libraries with a version."""
    site = tmp_path / "site-packages"
    for name in ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcudadevrt.a"):
        (site / "nvidia/cu13/lib").mkdir(parents=True, exist_ok=True)
        (site / "nvidia/cu13/lib" / name).write_text(name)
    return site


def test_linker_finds_toolkit_and_driver(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "driver" / "libcuda.so.1"
    driver.parent.mkdir()
    driver.write_text("driver")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{driver.parent}")
    root = site / "nvidia/cu13"
    for _ in range(2):  # a build that is resumed
        found = cuda_toolkit.build_environment(site)
        assert found["CUDACXX"] == str(root / "bin/nvcc")
        assert found["CUDAToolkit_ROOT"] == str(root)
        assert (root / "lib64/libcublas.so").read_text() == "libcublas.so.13"
        assert (root / "lib/stubs/libcuda.so").read_text() == "driver"


def test_driver_without_its_library(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(cuda_toolkit, "_FOLDERS", ())
    monkeypatch.setattr(cuda_toolkit, "answer_of", lambda _: "libc.so.6 (libc6) => /lib/libc.so.6")
    with pytest.raises(SetupError, match=r"libcuda\.so\.1 is nowhere") as caught:
        cuda_toolkit.build_environment(site)
    assert "LD_LIBRARY_PATH" in caught.value.hint


def test_the_extra_brings_what_the_installer_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["cuda"] == [cuda_toolkit.RUNTIME]
