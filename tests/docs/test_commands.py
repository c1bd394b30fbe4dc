"""Every command of the documentation, run as written: on a PC of its own, with a real server.

On that PC the hub of Hugging Face is a local one, which has nano's checkpoint under the names of
the real models. The port of the pages is replaced by a free one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import RunningServer, free_port, give_nano
from tests.docs.pages import PAGES, ROOT, Block, blocks
from tests.hub.server import run_hub
from tests.lora import ATTENTION, random_factors, write_lora

# Commands that need a terminal get a user who types. Findings of doctor depend on the machine.
GPTOSS = f"""#!/bin/sh
case "$1$#" in
    chat[1-9]|run1|run2) [ -c /dev/stdin ] && exec "{sys.executable}" -m tests.docs.terminal "$@" ;;
    web1) exec "{sys.executable}" -m gptoss_local web --no-open ;;
    doctor*) "{sys.executable}" -m gptoss_local "$@" || [ $? = 1 ]; exit ;;
esac
exec "{sys.executable}" -m gptoss_local "$@"
"""
CURL = f"""#!/bin/sh
exec "{shutil.which("curl")}" --silent --show-error --fail-with-body --noproxy '*' "$@"
"""
EACH_CHANGE = {"README.md", "first-chat.md", "cli.md", "models.md"}
RUN = {"sh": ["bash", "-eo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


@dataclass
class Pc:
    """A user's machine: a home folder, `gptoss` on the PATH, ports that the pages call theirs."""

    environment: dict[str, str]
    ports: dict[str, str]
    nano: Path

    def start_server(self) -> None:
        subprocess.run(["sh", "-c", "gptoss load nano"], env=self.environment, check=True)

    def run(self, block: Block, folder: Path) -> str:
        """Run a block and return its output. Fails unless its exit code is 0."""
        text = block.text
        for written, port in self.ports.items():
            text = text.replace(written, port)
        done = subprocess.run(
            [*RUN[block.language], text],
            env=self.environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, f"{block}:\n{text}\n{done.stdout[-2000:]}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def pc(
    nano_home: Path, nano_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pc]:
    home = tmp_path_factory.mktemp("pc")
    give_nano(nano_home, home / ".cache" / "gptoss")
    for name, script in {"gptoss": GPTOSS, "curl": CURL}.items():
        file = home / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(script)
        file.chmod(0o755)
    files = {path.name: path.read_bytes() for path in nano_checkpoint.iterdir()}
    ports = {"11434": str(free_port()), "11435": str(free_port())}
    with run_hub() as hub:
        for name in ("openai/gpt-oss-20b", "openai/gpt-oss-120b"):
            hub.add(name, files)
        environment = _environment(home) | {"HF_ENDPOINT": hub.endpoint}
        # A sampled answer of nano may have no end.
        limits = {"GPTOSS_PORT": ports["11434"], "GPTOSS_CONTEXT_LENGTH": "8192"}
        (nano,) = (home / ".cache" / "gptoss").glob("*.gguf")
        machine = Pc(environment | limits, ports, nano)
        try:
            yield machine
        finally:
            subprocess.run(["sh", "-c", "gptoss stop"], env=machine.environment, check=True)


def _environment(home: Path) -> dict[str, str]:
    """Environment of a user who has just logged in."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_"))}
    path = f"{home / 'bin'}:{Path(sys.executable).parent}:{kept['PATH']}"
    return kept | {
        "HOME": str(home),
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "NO_PROXY": "*",
    }


def _is_run(block: Block) -> bool:
    return block.language in RUN and "client" not in block.notes


@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("curl"), reason="the pages use curl")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.name in EACH_CHANGE else [pytest.mark.nightly])
        for page in PAGES
        if any(map(_is_run, blocks(page)))
    ],
    ids=lambda page: page.name,
)
def test_commands_of_a_page(pc: Pc, page: Path, tmp_path: Path) -> None:
    pc.start_server()  # which another page may have ended
    (tmp_path / "bench").symlink_to(ROOT / "bench")  # pages name files of a clone
    write_lora(tmp_path / "lora.gguf", random_factors(pc.nano, ATTENTION))
    for block in filter(_is_run, blocks(page)):
        printed = pc.run(block, tmp_path)
        for word in block.notes.get("prints", "").split(" | "):
            assert word in printed, f"{block} did not print {word!r}:\n{printed}"


def test_first_command(server: RunningServer) -> None:
    """The README's first command, if these tests run in the environment that it makes."""
    made = ROOT / ".venv" / "gptoss-setup"
    sources = [ROOT / "pyproject.toml", *(ROOT / "installers").iterdir()]
    if Path(sys.prefix) != ROOT / ".venv" or not made.is_file():
        pytest.skip("the tests run in another environment")
    if made.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        pytest.skip("the environment would be made anew")
    first = next(block for block in blocks(PAGES[0]) if "from_source.py" in block.text)
    done = subprocess.run(
        ["bash", "-c", first.text],
        cwd=ROOT,
        env=server.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
