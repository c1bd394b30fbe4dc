"""The page's files: the libraries are npm's byte for byte, ours are few, typed and clean."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.web.vendor import KNOWN, PACKAGES, ROOT, VENDOR, sha256_of, version_of

pytestmark = pytest.mark.quick

WEB = VENDOR.parent
OURS = [path for path in sorted(WEB.rglob("*")) if path.suffix in (".js", ".css", ".html", ".ts")]
MAX_LINES, MAX_JS_LINES = 4_900, 4_000
MAX_PACKED_BYTES = 1_500_000  # half of it is mermaid, loaded when needed
NODE = shutil.which("node")

needs_npm = pytest.mark.skipif(
    NODE is None or not PACKAGES.is_dir(), reason="first: npm ci --prefix tests/npm"
)


def test_each_file_is_listed_with_its_hash_and_its_licence() -> None:
    files = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}
    types = {f"{name.removesuffix('.js')}.d.ts" for name in KNOWN if name.endswith(".js")}
    assert files - types == {*KNOWN, "vendor.json"}
    assert [n for n, each in KNOWN.items() if each["sha256"] != sha256_of(VENDOR / n)] == []
    licensed = {each["package"] for each in KNOWN.values() if "LICENSE" in each["path"].upper()}
    assert {each["package"] for each in KNOWN.values()} <= licensed


@pytest.mark.nightly
@needs_npm
def test_files_are_those_of_the_packages() -> None:
    for name, each in KNOWN.items():
        source = PACKAGES / each["package"]
        assert (VENDOR / name).read_bytes() == (source / each["path"]).read_bytes()
        assert each["version"] == version_of(each["package"])


def test_ours_is_a_page_and_all_of_it_is_small() -> None:
    ours = [path for path in OURS if VENDOR not in path.parents]
    n_lines = {path: path.read_text(encoding="utf-8").count("\n") for path in ours}
    assert sum(n_lines.values()) < MAX_LINES
    assert sum(n for path, n in n_lines.items() if path.suffix == ".js") < MAX_JS_LINES
    served = [path for path in WEB.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    n_bytes = sum(len(gzip.compress(path.read_bytes())) for path in served)
    assert n_bytes < MAX_PACKED_BYTES


@pytest.mark.nightly
@needs_npm
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("tsc", ["--project", "tests/npm"]),
        ("eslint", ["--config", "tests/npm/eslint.config.js", "gptoss_local/server/web"]),
    ],
)
def test_types_and_lint(program: str, arguments: list[str]) -> None:
    path = Path(PACKAGES, ".bin", program)
    result = subprocess.run(
        [str(path), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
