"""Write man pages from what `--help` prints: `python man_pages.py FOLDER`.

It runs in the environment of the package. click-man would leave out all options: typer has a copy
of click of its own, whose classes click-man does not know.
"""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from gptoss_local import __version__
from gptoss_local.cli.main import COMMANDS, make_app

_SUMMARY = "a local runner for gpt-oss models"
_ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


def main(folder: Path) -> None:
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"])))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(date).items():
        (folder / name).write_text(text, encoding="utf-8")


def pages(date: str) -> dict[str, str]:
    """Return `gptoss.1` and a page for each command that the help lists, by their file names."""
    group: Any = typer.main.get_command(make_app())  # the classes are private to typer
    context = group.make_context("gptoss", [], resilient_parsing=True)
    found = {"gptoss.1": _page(group, context, _SUMMARY, date)}
    for name, summary in COMMANDS.items():
        command = group.commands[name]
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        found[f"gptoss-{name}.1"] = _page(command, inner, summary, date)
    return found


def _page(command: Any, context: Any, summary: str, date: str) -> str:
    name = context.command_path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH {_escaped(name.upper())} 1 "{date}" "gptoss {__version__}" "User Commands"',
        *(".nh", ".ad l"),  # names of commands are not broken, nor lines stretched
        *(".SH NAME", f"{_escaped(name)} \\- {_escaped(summary.rstrip('.'))}"),
        *(".SH SYNOPSIS", f"\\fB{_escaped(context.command_path)}\\fR {_escaped(usage)}"),
        *(".SH DESCRIPTION", *_paragraphs(command.help)),
    ]
    for kind in ("argument", "option"):
        parameters = [p for p in command.get_params(context) if p.param_type_name == kind]
        records = [parameter.get_help_record(context) for parameter in parameters]
        lines += _table(f"{kind.upper()}S", [record for record in records if record])
    others = ["gptoss"]
    if name == "gptoss":
        lines += _table("COMMANDS", list(COMMANDS.items()))
        others = [f"gptoss-{command}" for command in COMMANDS]
    references = ",\n".join(f".BR {_escaped(other)} (1)" for other in others)
    return "\n".join([*lines, ".SH SEE ALSO", references, ""])


def _table(heading: str, rows: list[tuple[str, str]]) -> list[str]:
    lines = [f".SH {heading}"] if rows else []
    for term, text in rows:
        lines += [".TP", f"\\fB{_escaped(term)}\\fR", _escaped(text)]
    return lines


def _paragraphs(text: str) -> Iterator[str]:
    for n, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if n:
            yield ".PP"
        yield _escaped(paragraph)


def _escaped(text: str) -> str:
    """Return text that roff prints as it is, on a line that does not begin with a dot."""
    escaped = "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    main(Path(sys.argv[1]))
