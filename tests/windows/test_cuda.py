"""CUDA's libraries in NVIDIA's packages, found by Windows' loader; small DLLs stand in for them."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.installers.test_cuda_wheels import DLLS, FOLDER
from tests.windows.conftest import ON_WINDOWS, Pc, windows_path

import cuda_toolkit  # isort: skip
from steps import Log  # isort: skip

pytestmark = ON_WINDOWS

COMPILER = "x86_64-w64-mingw32-gcc-posix"
# Visual Studio's program of that name, as far as mingw-w64 has it.
LIB = """#!/bin/sh
for option; do
  case $option in
    /def:*) definition=${option#/def:} ;;
    /out:*) library=${option#/out:} ;;
  esac
done
exec x86_64-w64-mingw32-dlltool -d "$definition" -l "$library"
"""
# cuBLAS loads the compiler of its kernels by name, and that one loads its library the same way.
LATER = """
#include <windows.h>
int count(void) {
    HMODULE library = LoadLibraryA("%s");
    return library ? ((int (*)(void)) GetProcAddress(library, "count"))() : -1;
}
"""
# llama.cpp itself is the installed one, which has no CUDA; its package's own function loads.
SCRIPT = """
import os, sys
from pathlib import Path
import gptoss_local.engine.llama
from gptoss_local.engine.llama.cuda_packages import preload_cuda
from llama_cpp._ctypes_extensions import load_shared_library

os.environ["LLAMA_CPP_LIB_PATH"] = sys.argv[1]
if sys.argv[2:] == ["preload"]:
    preload_cuda()
print(load_shared_library("ggml-cuda", Path(sys.argv[1])).devices())
"""


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    site, libraries = tmp_path / "site", tmp_path / "lib"
    packages, imports = site / FOLDER, site / "nvidia/cu13/lib/x64"
    for folder in (packages, imports, libraries):
        folder.mkdir(parents=True)

    def compile(path: Path, code: str, *needs: Path) -> Path:
        source = tmp_path / f"{path.name}.c"
        source.write_text(code)
        subprocess.run([COMPILER, "-shared", "-o", path, source, *needs], check=True)
        return path

    compile(packages / "nvrtc-builtins64_134.dll", "int count(void) { return 3; }")
    compile(packages / "nvrtc64_130_0.dll", LATER % "nvrtc-builtins64_134.dll")
    lt = compile(packages / "cublasLt64_13.dll", LATER % "nvrtc64_130_0.dll")
    code = "int count(void); int blas(void) { return count(); }"
    compile(packages / "cublas64_13.dll", code, lt)
    runtime = compile(packages / "cudart64_13.dll", "int runtime(void) { return 100; }")
    uses = "int blas(void); int runtime(void); int devices(void) { return blas() + runtime(); }"
    assert {path.name for path in packages.iterdir()} == DLLS
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "lib").write_text(LIB)
    (programs / "lib").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    log = Log(tmp_path / "build.log")
    for _ in range(2):  # a build that is resumed
        cuda_toolkit.add_import_library(log, Path(sys.executable), site, {"PATH": path})
    compile(libraries / "ggml-cuda.dll", uses, imports / "cublas.lib", runtime)
    return libraries


@pytest.fixture
def cuda_pc(pc: Pc, libraries: Path) -> Pc:
    packages = windows_path(libraries.with_name("site"))
    return replace(pc, variables={"PYTHONPATH": packages})


def test_llama_cpp_finds_cuda_among_packages(cuda_pc: Pc, libraries: Path) -> None:
    without = cuda_pc.start("-c", SCRIPT, windows_path(libraries))
    assert without.wait() != 0
    assert "ggml-cuda.dll" in without.printed
    found = cuda_pc.start("-c", SCRIPT, windows_path(libraries), "preload")
    assert found.wait() == 0, found.printed
    assert found.printed.split() == ["103"]
