"""Run or test gptoss from a clone: `python3 installers/from_source.py run nano "Hello"`.

The first call makes an environment in `.venv` and builds llama.cpp once per machine; later calls
only start. Standard library alone, because it runs before anything is installed.

    from_source.py test            set up and run all checks and tests
    from_source.py ARGUMENTS...    set up and run `gptoss ARGUMENTS...`

`CMAKE_ARGS` is passed on to llama.cpp's build, e.g. `CMAKE_ARGS="-DGGML_CUDA=on"`.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before an older Python trips over tomllib
    sys.exit("gptoss needs Python 3.11 or newer")

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
SCRIPTS = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = SCRIPTS / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "gptoss-setup"
CONSTRAINTS = ROOT / "installers" / "constraints.txt"
LLAMA = "llama-cpp-python"
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
    ("pytest",),
)


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    is_test = arguments == ["test"]
    set_up("test" if is_test else "")
    if not is_test:
        return subprocess.call([PYTHON, "-m", "gptoss_local", *arguments])
    for check in CHECKS:
        say(" ".join(check))
        if code := subprocess.call([SCRIPTS / check[0], *check[1:]], cwd=ROOT):
            return code
    return 0


def set_up(extra: str) -> None:
    """Make `.venv` hold this clone and its dependencies; nothing happens when it does already."""
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = pyproject + CONSTRAINTS.read_text(encoding="utf-8")
    wheels = wheel_folder(pinned_version(pyproject))
    stamp = f"{hashlib.sha256(wanted.encode()).hexdigest()} {wheels}\n{extra}"
    done = STAMP.read_text() if STAMP.is_file() else ""
    if done.startswith(stamp):  # an environment for tests serves for running, too
        return
    if not PYTHON.is_file():
        say(f"making an environment in {VENV}")
        make_environment()
    if not list(wheels.glob("*.whl")):
        build_llama(pinned_version(pyproject), wheels)
    say("installing gptoss" + (", and for its tests PyTorch and more: minutes" if extra else ""))
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    if str(wheels) not in done:  # pip would take another build of the same version as good enough
        wheel = next(wheels.glob("*.whl"))
        run_pip("install", "--quiet", "--force-reinstall", "--no-deps", str(wheel))
    options = ("--quiet", "--find-links", str(wheels), "--constraint", str(CONSTRAINTS))
    run_pip("install", *options, "--editable", target)
    STAMP.write_text(stamp)


def pinned_version(pyproject: str) -> str:
    """The one version of the binding whose structs match the library, from pyproject.toml."""
    for dependency in tomllib.loads(pyproject)["project"]["dependencies"]:
        if dependency.startswith(f"{LLAMA}=="):
            return str(dependency.partition("==")[2].strip())
    raise SystemExit(f"pyproject.toml pins no version of {LLAMA}")


def wheel_folder(version: str) -> Path:
    """Where the built wheel lies: one folder per version, build options and processor.

    The build uses all instructions of this processor, so another one must not get it.
    """
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path.home() / ".cache"
    processor = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        flags = re.search(r"^(flags|Features)\s*:.*$", cpuinfo.read_text(), re.M)
        processor = flags[0] if flags else processor
    key = f"{version} {cmake_args()} {platform.machine()} {sys.platform} {processor}"
    return root / "gptoss" / "wheels" / hashlib.sha256(key.encode()).hexdigest()[:16]


def cmake_args() -> str:
    return f"-DLLAVA_BUILD=OFF {os.environ.get('CMAKE_ARGS', '')}".strip()


def make_environment() -> None:
    try:
        venv.create(VENV, with_pip=True, clear=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            "Python cannot make an environment with pip. On Debian and Ubuntu: "
            "apt install python3-venv"
        ) from error


def build_llama(version: str, wheels: Path) -> None:
    """Build the wheel of llama.cpp and its binding into `wheels`; the only slow step."""
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++", "cl"))):
        raise SystemExit(
            "llama.cpp needs a C++ compiler. On Debian and Ubuntu: apt install g++ make"
        )
    say(f"building llama.cpp ({LLAMA} {version}), once on this machine: 5 minutes on 2 cores")
    environment = os.environ | {"CMAKE_ARGS": cmake_args()}
    environment.pop("SOURCE_DATE_EPOCH", None)  # with it, ggml builds without AVX
    wheels.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheels.parent) as partial:
        command = [PYTHON, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-binary", LLAMA]
        command += ["--wheel-dir", partial, f"{LLAMA}=={version}"]
        log = wheels.parent / "build.log"
        if follow_build(command, environment, log):
            tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-30:])
            raise SystemExit(f"{tail}\nllama.cpp did not build; the whole log is {log}")
        wheels.mkdir(exist_ok=True)
        for wheel in Path(partial).glob("*.whl"):
            shutil.move(wheel, wheels / wheel.name)


def follow_build(command: list[object], environment: dict[str, str], log: Path) -> int:
    """Run the build into `log`, and say every tenth of the way how far it is."""
    shown = 0
    with (
        log.open("w") as file,
        subprocess.Popen(
            list(map(str, command)),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as build,
    ):
        for line in build.stdout or ():
            file.write(line)
            if step := re.search(r"\[(\d+)/(\d+)\]", line):
                percent = 100 * int(step[1]) // int(step[2])
                if percent >= shown + 10:
                    shown = percent
                    say(f"  {percent} % built")
        return build.wait()


def run_pip(*arguments: str) -> None:
    if subprocess.call([PYTHON, "-m", "pip", *arguments]):
        raise SystemExit("pip failed, see above; the same command goes on where this one stopped")


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
