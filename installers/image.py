"""Fill the environment that a container image holds; container/Containerfile runs this.

It works without the GPU and the driver that the image is for, which setup_app asks for.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import environments
import llama_release
from from_source import ROOT
from gpu_choice import CPU, CUDA_13, VULKAN, Choice, arch_of
from installation import Order, make_package, put_llama
from llama_release import Build
from steps import Log, SetupError


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    log = Log(Path(tempfile.gettempdir()) / "gptoss-image.log")
    try:
        (fill if options.environment else fetch)(log, options)
    except SetupError as error:
        print(error.report, file=sys.stderr)
        return 1
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--wheels", type=Path, required=True, help="where llama.cpp is kept once it is fetched")
    add("--llama", choices=(CPU, CUDA_13, VULKAN), default=CPU, help="which of its releases")
    add("--llama-releases", default=llama_release.API, help="a mirror of GitHub's")
    add("--environment", type=Path, metavar="FOLDER", help="install gptoss, too; must be new")
    return parser.parse_args(arguments)


def fetch(log: Log, options: argparse.Namespace) -> None:
    """Fetch llama.cpp in a layer of its own, which stays while gptoss changes."""
    build = Build(**json.loads((ROOT / llama_release.FILE).read_text(encoding="utf-8")))
    kept = options.wheels.absolute() / build.build
    names = llama_release.names(build.build, options.llama, arch_of())
    llama_release.fetch(log, build, names, kept, options.llama_releases)
    llama_release.binding(log, Path(sys.executable), build.version, kept)


def fill(log: Log, options: argparse.Namespace) -> None:
    log.say(f"installing gptoss into {options.environment}")
    environment = options.environment.absolute()
    python = environments.make_environment(log, environment)
    choice = Choice((options.llama,), arch_of())
    order = Order(
        str(ROOT), choice, options.wheels.absolute(), options.llama_releases, False, False
    )
    with tempfile.TemporaryDirectory() as folder:
        package = make_package(log, python, order.source, Path(folder))
        environments.install_dependencies(log, python, "--no-cache-dir")
        put_llama(log, environment, package, order, options.llama)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
