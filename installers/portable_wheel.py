"""Build llama.cpp for the processors of many machines: the wheel in a release.

Its CPU backend is one library per generation of processors, of which the engine loads the best.
auditwheel adds OpenMP's library, and sets the tag: the oldest glibc that will do.
"""

import os
import platform
import re
import shutil
import sys
from pathlib import Path

import llama_wheel
from steps import Log, SetupError

_EPOCH = "1580601600"  # of the times in the archive, as hatchling's: equal files, equal bytes
ARGS = (
    f"{llama_wheel.LAYOUT} -DLLAMA_OPENSSL=OFF -DGGML_NATIVE=OFF"
    " -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
)
ARCHITECTURES = ("x86_64", "aarch64")


def kept_wheel(wheels: Path, version: str, arch: str) -> Path | None:
    return llama_wheel.wheel_in(_folder(wheels, version, arch))


def make(log: Log, wheels: Path, version: str, out: Path, arch: str) -> Path:
    folder = _folder(wheels, version, arch)
    tag = {"_PYTHON_HOST_PLATFORM": f"linux-{arch}"}  # sysconfig says it, and then the wheel
    built = llama_wheel.build(log, version, _args(arch), folder, edit=_drop_sme, env=tag)
    made = out / "repaired"
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    log.run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", made, built],
        failed="auditwheel found llama.cpp's wheel wrong",
        hint="",
        env={
            "PATH": programs,  # patchelf is one
            "SOURCE_DATE_EPOCH": _EPOCH,
            "AUDITWHEEL_LD_LIBRARY_PATH": f"/usr/{arch}-linux-gnu/lib",  # of a cross compiler
        },
    )
    wheel = llama_wheel.only_wheel(made)
    moved = Path(shutil.move(wheel, out / wheel.name))
    made.rmdir()
    return moved


def check_compiler(arch: str) -> None:
    if arch != platform.machine() and not shutil.which(f"{arch}-linux-gnu-g++"):
        hint = f"Debian, Ubuntu: apt install g++-{arch.replace('_', '-')}-linux-gnu"
        raise SetupError(f"There is no C++ compiler for {arch}.", hint)


def _args(arch: str) -> str:
    if arch == platform.machine():
        return ARGS
    system = f"-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR={arch}"
    compilers = "-DCMAKE_C_COMPILER={0}-gcc -DCMAKE_CXX_COMPILER={0}-g++"
    return f"{ARGS} {system} {compilers.format(f'{arch}-linux-gnu')}"


def _drop_sme(source: Path) -> None:
    """Remove ARM's variants with SME, which compilers before GCC 14 do not know.

    Only KleidiAI's kernels, absent here, use SME. Such processors get SVE2's variant.
    """
    cmake = source / "vendor" / "llama.cpp" / "ggml" / "src" / "CMakeLists.txt"
    text = cmake.read_text(encoding="utf-8")
    edited = re.sub(r"^ *ggml_add_cpu_backend_variant\(armv9.* SME\)\n", "", text, flags=re.M)
    cmake.write_text(edited, encoding="utf-8")


def _folder(wheels: Path, version: str, arch: str) -> Path:
    return llama_wheel.wheel_folder(wheels, version, _args(arch))
