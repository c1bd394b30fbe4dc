"""Fill a container image's environment, without the GPU and driver that setup_app asks for."""

import argparse
import sys
import tempfile
from pathlib import Path

import environments
import llama_release
from gpu_choice import CPU, CUDA_13, VULKAN, Choice, arch_of
from installation import Order, make_package, put_llama
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
    way, wheels, releases = options.llama, options.wheels.absolute(), options.llama_releases
    if not options.environment:  # in a layer of its own, which stays while gptoss changes
        build = llama_release.own_build()
        kept = wheels / build.build
        names = llama_release.names(build.build, way, arch_of())
        llama_release.fetch(log, build, names, kept, releases)
        llama_release.binding(log, Path(sys.executable), build.version, kept)
        return
    environment = options.environment.absolute()
    log.say(f"installing gptoss into {environment}")
    python = environments.make_environment(log, environment)
    order = Order(str(llama_release.ROOT), Choice((way,), arch_of()), wheels, releases)
    with tempfile.TemporaryDirectory() as folder:
        package = make_package(log, python, order.source, Path(folder))
        environments.install_dependencies(log, python, "--no-cache-dir")
        put_llama(log, environment, package, order, way)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(error.report)
