"""Make all files of a release: `python installers/release.py --out dist`, with the extra `release`.

    --dry-run        build and check gptoss's own package, and list the other files
    --arch aarch64   llama.cpp for this architecture; may be repeated, the default is this machine's

The package is the same, byte for byte, whenever the source is. llama.cpp's wheel is compiled once.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before an older Python trips over the imports
    sys.exit("gptoss needs Python 3.11 or newer")

import argparse
import platform
import re
import shutil
import tempfile
from pathlib import Path

import llama_wheel
import portable_wheel
import release_files
from from_source import ROOT, pinned_version
from steps import Log, SetupError

SCRIPTS = ("install.sh", "install.ps1")


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    log = Log(Path(tempfile.gettempdir()) / "gptoss-release.log")
    out = options.out.absolute()
    try:
        if not options.dry_run and out.exists():
            raise SetupError(f"{out} already exists.", "Name another folder with --out.")
        with tempfile.TemporaryDirectory(prefix="gptoss-release-") as folder:
            staging = Path(folder)
            for arch in options.arch:
                portable_wheel.check_compiler(arch)
            make_package(log, ROOT, staging)
            if options.dry_run:
                print("\n".join([*listed(staging), *further(options.wheels, options.arch)]))
                print("\nNothing was kept.")
                return 0
            add_the_rest(log, staging, options.wheels, options.arch)
            release_files.write_sums(staging)
            shutil.copytree(staging, out)
            print("\n".join(listed(out)))
    except SetupError as error:
        print(error.report, file=sys.stderr)
        return 1
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    add("--dry-run", action="store_true", help="make and check the package, and keep nothing")
    add("--wheels", type=Path, default=llama_wheel.cache_folder(), metavar="DIR",
        help="where llama.cpp is kept once it is compiled")  # fmt: skip
    add("--arch", action="append", choices=portable_wheel.ARCHITECTURES,
        help="what llama.cpp is for; may be repeated (default: this machine's)")  # fmt: skip
    options = parser.parse_args(arguments)
    options.arch = list(dict.fromkeys(options.arch or [platform.machine()]))
    return options


def make_package(log: Log, source: Path, out: Path) -> str:
    """Build and check gptoss's source archive and wheel; return the version of both."""
    log.say("building gptoss")
    log.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source],
        failed="gptoss's package could not be built",
        hint="The tools of a release: pip install -e '.[release]'",
    )
    files = sorted(out.glob("gptoss_local-*"))
    log.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        failed="A package index would not take what was built",
        hint="",
    )
    version = release_files.package_in(out).name.split("-")[1]
    check_changelog((source / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    return version


def check_changelog(text: str, version: str) -> None:
    """Raise SetupError unless the first section, `## 0.1.0 (not released yet)`, is of a version."""
    heading = re.search(r"^## (.*)", text, re.M)
    if heading is None or heading[1].split()[:1] != [version]:
        raise SetupError(
            f"CHANGELOG.md begins with '{heading[1] if heading else ''}', not with {version}.",
            "The version is in gptoss_local/__init__.py.",
        )


def add_the_rest(log: Log, out: Path, wheels: Path, archs: list[str]) -> None:
    for arch in archs:
        portable_wheel.make(log, wheels, _llama_version(), out, arch)
    for name in SCRIPTS:
        shutil.copy2(ROOT / "installers" / name, out)


def further(wheels: Path, archs: list[str]) -> list[str]:
    version = _llama_version()
    lines = []
    for arch in archs:
        kept = portable_wheel.kept_wheel(wheels, version, arch)
        how = f"from {kept}" if kept else "compiled here, once"
        lines.append(f"  llama_cpp_python-{version}-py3-none-manylinux_…_{arch}.whl, {how}")
    return [*lines, *(f"  {name}" for name in (*SCRIPTS, release_files.SUMS))]


def listed(folder: Path) -> list[str]:
    return [f"  {p.name}  {p.stat().st_size / 1e6:.1f} MB" for p in sorted(folder.iterdir())]


def _llama_version() -> str:
    return pinned_version((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
