"""Fill the environment that a container image holds; container/Containerfile runs this.

It works without the GPU and the driver that the image is for, which setup_app asks for.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import cuda_toolkit
import environments
import llama_wheel
import verification
from environments import pip
from from_source import CONSTRAINTS, ROOT, pinned_version
from installation import make_package
from steps import Log, SetupError

ALL = ("75-real", "80-real", "86-real", "89-real", "90-real", "100-real", "120a-real")
"""RTX 20, A100, RTX 30, RTX 40, H100, B200 and RTX 50."""


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    architectures = ALL if options.cuda == "all" else tuple(filter(None, options.cuda.split(";")))
    log = Log(Path(tempfile.gettempdir()) / "gptoss-image.log")
    try:
        wheel = get_wheel(log, options.wheels.absolute(), architectures)
        if options.environment:
            fill(log, options.environment.absolute(), wheel, architectures)
    except SetupError as error:
        print(error.report, file=sys.stderr)
        return 1
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--wheels", type=Path, required=True, help="where the llama.cpp that was built is kept")
    add("--cuda", default="", metavar="LIST", help="GPUs: all, or '86-real;120a-real'")
    add("--environment", type=Path, metavar="FOLDER", help="install gptoss, too; must be new")
    return parser.parse_args(arguments)


def get_wheel(log: Log, wheels: Path, architectures: tuple[str, ...]) -> Path:
    version = pinned_version((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    args = llama_wheel.cmake_args(architectures)
    folder = llama_wheel.wheel_folder(wheels, version, args)
    if architectures and not llama_wheel.wheel_in(folder):
        add_driver(log, wheels / "driver")
    return llama_wheel.build(log, version, args, folder, bool(architectures))


def add_driver(log: Log, folder: Path) -> None:
    """Make an empty driver library to link with, as the host has the real one.

    Nothing needs a symbol of an empty library, so the linker is told to keep it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-shared", "-Wl,-soname,libcuda.so.1", "-x", "c", os.devnull)
    compiler = environments.find_compiler() or "c++"  # without one, the build says so
    log.run(
        [compiler, *options, "-o", folder / "libcuda.so.1"],
        failed="the library to link with could not be made",
        hint="It needs a C++ compiler.",
    )
    os.environ["LD_LIBRARY_PATH"] = str(folder)
    os.environ["LDFLAGS"] = f"-Wl,--no-as-needed {os.environ.get('LDFLAGS', '')}".strip()


def fill(log: Log, environment: Path, wheel: Path, architectures: tuple[str, ...]) -> None:
    """Install gptoss with this llama.cpp into an environment; check it, if it is for the CPU."""
    log.say(f"installing gptoss into {environment}")
    python = environments.make_environment(log, environment)
    with tempfile.TemporaryDirectory() as folder:
        package = make_package(log, python, str(ROOT), Path(folder))
        packages: list[str | Path] = [wheel, package.wheel]
        packages += [cuda_toolkit.RUNTIME] if architectures else []
        is_cuda = bool(architectures)
        environments.install_dependencies(log, python, "--no-cache-dir", is_cuda=is_cuda)
        options = ("--no-cache-dir", "--constraint", CONSTRAINTS)
        pip(log, python, "install", *options, *packages, doing="install gptoss")
    if not architectures and (reason := verification.unsuitable(log, environment, ())):
        raise SetupError(f"llama.cpp does not suit. {reason}", f"Log: {log.path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
