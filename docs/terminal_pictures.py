"""Make the pictures of commands in docs/.

    python -m docs.terminal_pictures [FOLDER]

The commands, the terminal and the server are real; the model is the script of `docs.screenshots`.
"""

import os
import shlex
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from docs.screenshots import run_script
from gptoss_local.models.nano import ensure_gguf
from tests.cli.conftest import in_terminal, rows_left

_QUESTION = "Is 221 a prime number?"
PICTURES = {
    "run": [
        ("gptoss", "run", "gpt-oss:20b", _QUESTION),
        ("gptoss", "run", "gpt-oss:20b", _QUESTION, "--effort", "high"),
    ],
    "plan": [("gptoss", "plan", "gpt-oss:120b", "--vram", "16GiB", "--ram", "64GiB")],
}


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        ensure_gguf(Path(home) / "cache")
        with run_script(Path(home)) as server:
            in_terminal({**os.environ, **server.environment}, "load", "gpt-oss:20b")
            for name, commands in PICTURES.items():
                text = photograph(server.environment, commands)
                (folder / f"{name}.svg").write_text(text, encoding="utf-8")


def photograph(environment: dict[str, str], commands: list[tuple[str, ...]]) -> str:
    """Run commands on a terminal and return what it shows then, as SVG."""
    console = Console(width=100, record=True, file=StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text.assemble(("$ ", "green"), (shlex.join(command), "bold")))
        written = in_terminal({**os.environ, **environment}, *command[1:])
        rows = rows_left(written.replace("\r\n", "\n"))
        console.print(Text.from_ansi("\n".join(rows).rstrip()))
        console.print()
    return console.export_svg(title="gptoss")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
