"""Fill the environment that a container image holds; container/Containerfile runs this.

It works without the GPU and the driver that the image is for, which setup_app asks for.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import environments
import llama_release
from gpu_choice import CPU, CUDA_13, VULKAN, Choice, arch_of
from installation import Order, make_package, put_llama
from llama_release import ROOT
from steps import Log, SetupError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--wheels", type=Path, required=True, help="where llama.cpp is kept once it is fetched")
    add("--llama", choices=(CPU, CUDA_13, VULKAN), default=CPU, help="which of its releases")
    add("--llama-releases", default=llama_release.API, help="a mirror of GitHub's")
    add("--environment", type=Path, metavar="FOLDER", help="install gptoss, too; must be new")
    options = parser.parse_args()
    log = Log(Path(tempfile.gettempdir()) / "gptoss-image.log")
    choice, wheels = Choice((options.llama,), arch_of()), options.wheels.absolute()
    order = Order(str(ROOT), choice, wheels, options.llama_releases)
    if options.environment:
        fill(log, options.environment.absolute(), order)
    else:
        fetch(log, order)


def fetch(log: Log, order: Order) -> None:
    """Fetch llama.cpp in a layer of its own, which stays while gptoss changes."""
    build = llama_release.own_build()
    kept = order.wheels / build.build
    names = llama_release.names(build.build, order.choice.ways[0], order.choice.arch)
    llama_release.fetch(log, build, names, kept, order.releases)
    llama_release.binding(log, Path(sys.executable), build.version, kept)


def fill(log: Log, environment: Path, order: Order) -> None:
    log.say(f"installing gptoss into {environment}")
    python = environments.make_environment(log, environment)
    with tempfile.TemporaryDirectory() as folder:
        package = make_package(log, python, order.source, Path(folder))
        environments.install_dependencies(log, python, "--no-cache-dir")
        put_llama(log, environment, package, order, order.choice.ways[0])


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(error.report)
