"""Make all files of a release: `python installers/release.py --out dist`, with the extra `release`.

The package is the same, byte for byte, whenever the source is; `SHA256SUMS` has the checksums.
"""

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

from llama_release import ROOT, sha256
from steps import Log, SetupError

SUMS = "SHA256SUMS"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER")
    out: Path = parser.parse_args(arguments).out.absolute()
    try:
        if out.exists():
            raise SetupError(f"{out} already exists.", "Name another folder with --out.")
        with tempfile.TemporaryDirectory(prefix="gptoss-release-") as folder:
            make_release(Log(Path(tempfile.gettempdir()) / "gptoss-release.log"), Path(folder))
            shutil.copytree(folder, out)
    except SetupError as error:
        print(error.report, file=sys.stderr)
        return 1
    return 0


def make_release(log: Log, out: Path) -> None:
    make_package(log, ROOT, out)
    for name in ("install.sh", "install.ps1"):
        shutil.copy2(ROOT / "installers" / name, out)
    write_sums(out)


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
    version = package_in(out).name.split("-")[1]
    heading = re.search(r"^## (\S*)", (source / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    if heading is None or heading[1] != version:
        raise SetupError(
            f"CHANGELOG.md begins with '{heading[1] if heading else ''}', not with {version}.",
            "The version is in gptoss_local/__init__.py.",
        )
    return version


def write_sums(folder: Path) -> None:
    """Write the checksums of a folder's files, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{sha256(path)}  {path.name}\n" for path in files]
    (folder / SUMS).write_bytes("".join(lines).encode())


def check_sums(folder: Path) -> None:
    """Raise SetupError if a file of the release that is here was changed; not all need be here."""
    again = "Download the release's files again."
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SetupError(f"The release in {folder} cannot be checked: {error}", again) from error
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for path in (*folder.glob("*.whl"), *folder.glob("*.tar.gz")):
        if sums.get(path.name) != sha256(path):
            raise SetupError(f"{path} is not the file that was released.", again)


def package_in(folder: Path) -> Path:
    found = sorted(folder.glob("gptoss_local-*.whl"))
    if len(found) != 1:
        has = f"has {len(found)} of them" if found else "has none"
        hint = "--release takes the folder with all files of one release."
        raise SetupError(f"gptoss's wheel gptoss_local-VERSION.whl: {folder} {has}.", hint)
    return found[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
