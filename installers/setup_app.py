"""Install, upgrade or remove gptoss for one user, for install.sh and install.ps1.

Run those; they find a Python for this. `--help` lists the options.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before an older Python trips over the imports
    sys.exit("gptoss needs Python 3.11 or newer")

import argparse
import os
from pathlib import Path

import gpu_choice
import llama_release
import llama_wheel
import receipt as records
import shell_setup
from environments import find_compiler
from gpu_choice import Choice
from installation import Order, install
from llama_release import ROOT
from receipt import Places, Receipt
from release import check_sums, package_in
from removal import uninstall
from steps import Log, SetupError


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    prepare_environment(options.index)
    try:
        places = records.places()
        (remove if options.uninstall or options.purge else set_up)(options, places, Log(places.log))
        return 0
    except SetupError as error:
        print(error.report, file=sys.stderr)
    except OSError as error:
        hint = "Is a disk full, or a folder not yours? What was installed before still is."
        print(f"\n{error}\n{hint} --wheels names another for llama.cpp.", file=sys.stderr)
    return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="install.ps1" if os.name == "nt" else "install.sh",
        description="Install gptoss for you alone, or upgrade it. No root, no system CUDA.",
    )
    add = parser.add_argument
    add("--yes", "-y", action="store_true", help="ask nothing")
    add("--dry-run", action="store_true", help="say what would be done, and change nothing")
    add("--backend", choices=("auto", "cuda", "vulkan", "cpu"), default="auto", help="of llama.cpp")
    add("--service", action="store_true", help="start a server now and at every login")
    add("--no-path", action="store_true", help="leave the shell's start-up file alone")
    add("--from", dest="source", metavar="SOURCE", help="gptoss's folder, archive, wheel or URL")
    add("--release", type=Path, metavar="DIR", help="a folder with a release's files")
    add("--index", metavar="URL", help="package index to use instead of PyPI")
    add("--wheels", type=Path, metavar="DIR", help="where llama.cpp is kept for the next upgrade")
    add("--llama-releases", default=llama_release.API, metavar="URL", help="a mirror of GitHub's")
    add("--uninstall", action="store_true", help="remove gptoss; models and chats stay")
    add("--purge", action="store_true", help="remove models, chats and settings, too")
    return parser.parse_args(arguments)


def prepare_environment(index: str | None) -> None:
    """Keep settings of the user's Python out of the new environments."""
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV"):
        os.environ.pop(name, None)
    os.environ["PIP_USER"] = "0"
    if index:
        os.environ["PIP_INDEX_URL"] = os.environ["UV_DEFAULT_INDEX"] = index


def set_up(options: argparse.Namespace, places: Places, log: Log) -> None:
    source = options.source or own_source(options.release)
    if "://" not in source and not Path(source).exists():
        raise SetupError(f"{source} does not exist.", "--from takes gptoss's folder, file or URL.")
    previous = records.read(places.app)
    choice = gpu_choice.choose(gpu_choice.read_facts(find_compiler()), options.backend)
    print("\n".join(plan(places, source, previous, choice)))
    if options.dry_run:
        print("\nNothing was changed.")
        return
    confirm("Continue?", options.yes)
    is_served = options.service or bool(previous and previous.has_service)
    if not (is_served or options.yes):
        is_served = ask("Start a server now and at every login?", default=False)
    wheels = (options.wheels or llama_wheel.cache_folder()).absolute()
    releases = options.llama_releases.rstrip("/")
    with log.alone():
        order = Order(source, choice, wheels, releases, not options.no_path, is_served)
        install(log, places, order)


def own_source(folder: Path | None) -> str:
    """Return gptoss's wheel in a release's folder, or what this file is in."""
    if folder:
        check_sums(folder.absolute())
        return str(package_in(folder.absolute()))
    if (ROOT / "pyproject.toml").is_file():
        return str(ROOT)
    hint = "No version is published on a package index yet: name an archive or a wheel with --from."
    raise SetupError("gptoss itself is not next to this installer.", hint)


def plan(places: Places, source: str, previous: Receipt | None, choice: Choice) -> list[str]:
    verb = f"Upgrade of gptoss {previous.version}" if previous else "Installation of gptoss"
    lines = [
        f"{verb} from {source}",
        f"  program    {places.app}",
        f"  command    {shell_setup.command_of(places)}",
        f"  llama.cpp  {choice.backend}: {choice.reason}",
        f"             {gpu_choice.described(choice.ways[0])}",
        f"  log        {places.log}",
    ]
    lines += [f"             else {gpu_choice.described(way)}" for way in choice.ways[1:]]
    if previous:
        lines.append("  Models, chats and settings stay. A server that runs is stopped.")
    return lines + ([f"  Note: {choice.advice}"] if choice.advice else [])


def remove(options: argparse.Namespace, places: Places, log: Log) -> None:
    found = records.read(places.app)
    if found is None:
        raise SetupError(f"gptoss is not installed in {places.app}.", "Nothing to remove.")
    if not options.dry_run:
        with log.alone():  # Windows removes no file that is open, so it is not held
            pass
    uninstall(log, places, found, options.purge, options.dry_run, lambda q: confirm(q, options.yes))


def confirm(question: str, is_sure: bool) -> None:
    if not is_sure and not ask(question, default=True):
        raise SetupError("Nothing was changed.", "You said no.")


def ask(question: str, default: bool) -> bool:
    if not sys.stdin.isatty():
        hint = "Pass --yes, or look first with --dry-run."
        raise SetupError("Confirmation needs a terminal.", hint)
    try:
        answer = input(f"\n{question} [{'Y/n' if default else 'y/N'}] ").strip().lower()
    except EOFError:  # Ctrl-D
        return False
    return answer.startswith("y") if answer else default


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
