"""Build llama.cpp for the processors of many machines: the wheel that a release brings.

Its CPU backend is one library per generation of processors, from the first x86-64 to AVX-512 and
AMX; `gptoss_local.llama` loads the best one. auditwheel adds OpenMP's library, and sets the tag:
the oldest glibc that will do, which follows from the system that this runs on.
"""

import os
import shutil
import sys
from pathlib import Path

import llama_wheel
from steps import Log, SetupError

_EPOCH = "1580601600"  # of the times in the archive, as hatchling's: equal files, equal bytes
ARGS = " ".join(
    (
        "-DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DGGML_NATIVE=OFF",
        "-DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON",
        # All in one folder, each library once: a wheel has no links, and would hold copies.
        "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib -DCMAKE_INSTALL_LIBDIR=llama_cpp/lib",
        "-DCMAKE_INSTALL_INCLUDEDIR=llama_cpp/include -DCMAKE_INSTALL_RPATH=$ORIGIN",
        "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
    )
)


def kept_wheel(wheels: Path, version: str) -> Path | None:
    """Return the wheel from an earlier run, before auditwheel."""
    return llama_wheel.wheel_in(_folder(wheels, version))


def make(log: Log, wheels: Path, version: str, out: Path) -> Path:
    """Return the wheel for Linux on this kind of processor; it is compiled once.

    Raises:
        SetupError: it does not compile, or needs something that other systems may lack.
    """
    built = kept_wheel(wheels, version)
    built = built or llama_wheel.build(log, version, ARGS, _folder(wheels, version))
    made = out / "repaired"
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    log.run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", made, built],
        failed="auditwheel found llama.cpp's wheel wrong",
        hint="",
        env={"PATH": programs, "SOURCE_DATE_EPOCH": _EPOCH},  # patchelf is one
    )
    wheel = llama_wheel.wheel_in(made)
    if wheel is None:
        raise SetupError(f"auditwheel left no wheel in {made}.", f"Log: {log.path}")
    moved = Path(shutil.move(wheel, out / wheel.name))
    made.rmdir()
    return moved


def _folder(wheels: Path, version: str) -> Path:
    return llama_wheel.wheel_folder(wheels, version, ARGS)
