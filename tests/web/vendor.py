"""Copy the libraries of the web page from npm: `python -m tests.web.vendor`.

`vendor.json` lists each of our files, the package and path that it comes from byte for byte, its
version and its hash. Versions come from tests/npm/package.json; to take a newer one, change it
there, run `npm install --prefix tests/npm`, then this.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "gptoss_local" / "server" / "web" / "vendor"
PACKAGES = ROOT / "tests" / "npm" / "node_modules"
LIST = VENDOR / "vendor.json"
KNOWN: dict[str, dict[str, Any]] = json.loads(LIST.read_text(encoding="utf-8"))


def version_of(package: str) -> str:
    """Return the installed version of an npm package."""
    text = (PACKAGES / package / "package.json").read_text(encoding="utf-8")
    return str(json.loads(text)["version"])


def sha256_of(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    for name, each in KNOWN.items():
        target = VENDOR / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((PACKAGES / each["package"] / each["path"]).read_bytes())
        each |= {"version": version_of(each["package"]), "sha256": sha256_of(target)}
    LIST.write_text(json.dumps(KNOWN, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
