"""The programs of docs/ide.md, set up as the page says, against a real server with nano.

They are fetched once, by hand, and skipped where they are not there:

    npm install --prefix tests/clients
    npm install --prefix tests/clients/openclaw  # with node 24
    for p in aider gptme hermes llm; do  # whose requirements contradict each other
        python3 -m venv tests/clients/$p/.venv
        tests/clients/$p/.venv/bin/pip install -r tests/clients/$p/requirements.txt
    done
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.conftest import RunningServer, give_nano, run_server
from tests.docs.pages import ROOT, Block, blocks

FOLDER = Path(__file__).parent
NPM = ROOT / "tests" / "npm"
PAGE = ROOT / "docs" / "ide.md"
PROGRAMS = os.pathsep.join(
    map(
        str,
        [
            FOLDER / "node_modules" / ".bin",
            *sorted([*FOLDER.glob("*/.venv/bin"), *FOLDER.glob("*/node_modules/.bin")]),
        ],
    )
)
RUN = [block for block in blocks(PAGE) if "client" in block.notes]
WRITTEN = [block for block in blocks(PAGE) if "file" in block.notes]
JS = [block for block in blocks(PAGE) if block.language == "js"]
LIMIT_S = 800


@pytest.fixture(scope="module")
def models_server(
    nano_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with nano as gpt-oss:20b."""
    home = tmp_path_factory.mktemp("models")
    give_nano(nano_home, home / "cache")
    (gguf,) = (home / "cache").glob("*.gguf")
    (home / "models").mkdir()
    (home / "models" / "gpt-oss-20b.gguf").hardlink_to(gguf)
    with run_server(home) as server:
        yield server


@contextmanager
def new_user(home: Path) -> Iterator[dict[str, str]]:
    """Make the environment of a user; end the leftover processes of the programs."""
    (home / "work").mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "SSL_CERT_FILE") if name in os.environ}
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    yield kept | {"HOME": str(home), "PATH": path, "TERM": "dumb"}
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("HOME") == str(home):
            process.kill()


@pytest.fixture
def user(models_server: RunningServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A user with the files of the page."""
    for block in WRITTEN:
        file = tmp_path / block.notes["file"].removeprefix("~/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_here(block, models_server))
    # nano may repeat itself without end, and Qwen Code would ask again for an even longer answer.
    own = {"QWEN_CODE_MAX_OUTPUT_TOKENS": "300", "NO_PROXY": "*"}
    with new_user(tmp_path) as environment:
        yield environment | own


def _here(block: Block, server: RunningServer) -> str:
    return block.text.replace("http://127.0.0.1:11434", server.url)


@pytest.mark.nightly
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.notes["client"])
def test_answers(models_server: RunningServer, user: dict[str, str], block: Block) -> None:
    if shutil.which(block.notes["client"], path=PROGRAMS) is None:
        pytest.skip("not fetched: see the top of this file")
    done = subprocess.run(
        ["bash", "-euc", _here(block, models_server)],
        env=user,
        cwd=Path(user["HOME"], "work"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), done.stderr
    for word in block.notes.get("prints", "").split(" | "):
        assert word in done.stdout, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.skipif(not (NPM / "node_modules").is_dir(), reason="first: npm ci --prefix tests/npm")
@pytest.mark.parametrize("block", JS, ids=str)
def test_javascript(server: RunningServer, block: Block) -> None:
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", _here(block, server)],
        cwd=NPM,
        env=os.environ | {"NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for word in block.notes["prints"].split(" | "):
        assert word in done.stdout


def test_page_tells_the_versions_that_are_tried() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Editors")[0]
    packages = {}
    for folder in (FOLDER, FOLDER / "openclaw", NPM):
        packages |= json.loads((folder / "package.json").read_text())["dependencies"]
    for file in FOLDER.glob("*/requirements.txt"):
        packages |= dict(re.findall(r"(\S+)==(\S+)", file.read_text()))
    for name, version in packages.items():
        assert name == "node" or f" {version}" in table, name
