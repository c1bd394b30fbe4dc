"""A release's folder: wheels, source, installer, and the checksums of all of them."""

import hashlib
from pathlib import Path

from steps import SetupError

SUMS = "SHA256SUMS"


def write_sums(folder: Path) -> Path:
    """Write the checksums of a folder's files, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{_sha256(path)}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return folder / SUMS


def check_sums(folder: Path) -> None:
    """Raise SetupError if a file of the release that is here was changed; not all need be here."""
    again = "Download the release's files again."
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SetupError(f"The release in {folder} cannot be checked: {error}", again) from error
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for path in (*folder.glob("*.whl"), *folder.glob("*.tar.gz")):
        if sums.get(path.name) != _sha256(path):
            raise SetupError(f"{path} is not the file that was released.", again)


def package_in(folder: Path) -> Path:
    found = sorted(folder.glob("gptoss_local-*.whl"))
    if len(found) != 1:
        has = f"has {len(found)} of them" if found else "has none"
        hint = "--release takes the folder with all files of one release."
        raise SetupError(f"gptoss's wheel gptoss_local-VERSION.whl: {folder} {has}.", hint)
    return found[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
