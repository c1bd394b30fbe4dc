"""Make all files of a release: `python installers/release.py --out dist`, with the extra `release`.

The package is the same, byte for byte, whenever the source is.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before an older Python trips over the imports
    sys.exit("gptoss needs Python 3.11 or newer")

import argparse
import re
import shutil
import tempfile
from pathlib import Path

import release_files
from from_source import ROOT
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
            make_release(log, staging)
            print("\n".join(listed(staging)))
            if options.dry_run:
                print("\nNothing was kept.")
            else:
                shutil.copytree(staging, out)
    except SetupError as error:
        print(error.report, file=sys.stderr)
        return 1
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    add("--dry-run", action="store_true", help="make and check them, and keep nothing")
    return parser.parse_args(arguments)


def make_release(log: Log, out: Path) -> None:
    make_package(log, ROOT, out)
    for name in SCRIPTS:
        shutil.copy2(ROOT / "installers" / name, out)
    release_files.write_sums(out)


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


def listed(folder: Path) -> list[str]:
    return [f"  {p.name}  {p.stat().st_size / 1e6:.1f} MB" for p in sorted(folder.iterdir())]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
