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
import subprocess
from contextlib import nullcontext

import environments
import llama_release
import llama_wheel
from llama_release import ROOT
from steps import Log, SetupError

VENV = ROOT / ".venv"
PYTHON = environments.python_of(VENV)
STAMP = VENV / "gptoss-setup"
CONSTRAINTS = ROOT / "installers" / "constraints.txt"
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
    # Tests wait for processes and clocks half of the time, so there are more of them than cores. In
    # their own order the long ones with few tests are not the last ones.
    (
        *("pytest", "-m", "not nightly"),
        *("--numprocesses=3", "--dist=loadfile", "--no-loadscope-reorder"),
    ),
)


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    is_test = arguments == ["test"]
    set_up("test" if is_test else "")
    if not is_test:
        return subprocess.call([PYTHON, "-m", "gptoss_local", *arguments])
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each worker would compile all tests
    for check in CHECKS:
        print(f"$ {' '.join(check)}", file=sys.stderr, flush=True)
        command = [environments.program_of(VENV, check[0]), *check[1:]]
        with _prepare_tests() if check[0] == "mypy" else nullcontext():
            if code := subprocess.call(command, cwd=ROOT):
                return code
    return 0


def _prepare_tests() -> "subprocess.Popen[bytes]":
    """Compile tests, and build nano, once for all workers, on the core that mypy leaves free."""
    command = [str(environments.program_of(VENV, "pytest")), "-q", "-k", "vocabulary_is_counted"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def set_up(extra: str) -> None:
    """Install this clone and its dependencies into `.venv`, unless they are there already."""
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    files = (CONSTRAINTS, CONSTRAINTS.with_name("requirements.txt"))
    wanted = pyproject + "".join(path.read_text(encoding="utf-8") for path in files)
    version, args = llama_release.own_build().version, llama_wheel.cmake_args()
    cache = llama_wheel.cache_folder()
    wheels = llama_wheel.wheel_folder(cache, version, args)
    stamp = f"{hashlib.sha256(wanted.encode()).hexdigest()} {wheels}\n{extra}"
    done = STAMP.read_text() if STAMP.is_file() else ""
    if done.startswith(stamp):  # an environment for tests serves for running, too
        return
    log = Log(cache / "build.log")
    if not PYTHON.is_file():
        log.say(f"making an environment in {VENV}")
        environments.make_environment(log, VENV)
    wheel = llama_wheel.build(log, version, args, wheels)
    log.say(f"installing gptoss{', and for its tests PyTorch and more' if extra else ''}")
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    if str(wheels) not in done:  # pip would take another build of the same version as good enough
        options = ("--force-reinstall", "--no-deps")
        environments.pip(log, PYTHON, "install", *options, wheel, doing="install llama.cpp")
    environments.install_dependencies(log, PYTHON)
    links = ("--find-links", wheels, "--constraint", CONSTRAINTS)
    environments.pip(log, PYTHON, "install", *links, "--editable", target, doing="install gptoss")
    STAMP.write_text(stamp)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        sys.exit(error.report)
    except KeyboardInterrupt:
        sys.exit(130)
