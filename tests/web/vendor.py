"""Copy the libraries of the web page from npm: `python -m tests.web.vendor`.

Their versions are those of tests/npm/package.json; to take a newer one, change it there, run
`npm install --prefix tests/npm`, then this. `vendor.json` lists what each file is, with its hash.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "gptoss_local" / "server" / "web" / "vendor"
PACKAGES = ROOT / "tests" / "npm" / "node_modules"
LIST = VENDOR / "vendor.json"

FONTS = [
    *(f"KaTeX_{name}-Regular" for name in ("AMS", "Caligraphic", "Fraktur", "Main", "SansSerif")),
    *(f"KaTeX_{name}-Regular" for name in ("Script", "Typewriter", "Size1", "Size2", "Size3")),
    *("KaTeX_Size4-Regular", "KaTeX_Math-Italic", "KaTeX_Math-BoldItalic", "KaTeX_Main-Bold"),
    *("KaTeX_Main-Italic", "KaTeX_Main-BoldItalic", "KaTeX_Caligraphic-Bold"),
    *("KaTeX_Fraktur-Bold", "KaTeX_SansSerif-Bold", "KaTeX_SansSerif-Italic"),
]
INTER = "@fontsource-variable/inter"
FILES = {
    "preact.js": ("htm", "preact/standalone.module.js"),  # with hooks and htm
    "markdown-it.js": ("markdown-it", "dist/browser/markdown-it.esm.min.mjs"),
    "purify.js": ("dompurify", "dist/purify.es.mjs"),
    "highlight.js": ("@highlightjs/cdn-assets", "es/highlight.min.js"),
    "katex.js": ("katex", "dist/katex.min.js"),  # sets globalThis.katex
    "katex.css": ("katex", "dist/katex.min.css"),
    "copy-tex.js": ("katex", "dist/contrib/copy-tex.mjs"),
    **{f"fonts/{name}.woff2": ("katex", f"dist/fonts/{name}.woff2") for name in FONTS},
    "fonts/Inter-Latin.woff2": (INTER, "files/inter-latin-wght-normal.woff2"),
    "licences/inter.txt": (INTER, "LICENSE"),
    "licences/htm.txt": ("htm", "LICENSE"),
    "licences/preact.txt": ("preact", "LICENSE"),  # in preact.js
    "licences/markdown-it.txt": ("markdown-it", "LICENSE"),
    "licences/entities.txt": ("entities", "LICENSE"),  # in markdown-it.js, as the next four
    "licences/linkify-it.txt": ("linkify-it", "LICENSE"),
    "licences/mdurl.txt": ("mdurl", "LICENSE"),
    "licences/punycode.txt": ("punycode.js", "LICENSE-MIT.txt"),
    "licences/uc.micro.txt": ("uc.micro", "LICENSE.txt"),
    "licences/dompurify.txt": ("dompurify", "LICENSE"),
    "licences/highlight.txt": ("@highlightjs/cdn-assets", "LICENSE"),
    "licences/katex.txt": ("katex", "LICENSE"),
}
"""Our file, and the package and path that it comes from, byte for byte."""


def version_of(package: str) -> str:
    """Return the installed version of an npm package."""
    text = (PACKAGES / package / "package.json").read_text(encoding="utf-8")
    return str(json.loads(text)["version"])


def sha256_of(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def vendored() -> dict[str, Any]:
    """Return what `vendor.json` says of each file."""
    found: dict[str, Any] = json.loads(LIST.read_text(encoding="utf-8"))
    return found


def main() -> None:
    known = {}
    for name, (package, path) in FILES.items():
        target = VENDOR / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((PACKAGES / package / path).read_bytes())
        source = {"package": package, "version": version_of(package), "path": path}
        known[name] = source | {"sha256": sha256_of(target)}
    LIST.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
