"""Long texts in the input are folded to a chip, and sent whole."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from gptoss_local.base.quantities import counted
from gptoss_local.talk.ignored import MAX_SEEN, Walk

_MAX_LINES = 8
_MAX_CHARACTERS = 1000
BYTES_PER_TOKEN = 4  # of o200k: 4.1 in code, 4.7 in Chinese, 5.1 in English
_CHIP = re.compile(r"\[\w+ #\d+: [^\]\n]*\]")
AT = re.compile(r"(?:^|\s)@((?:(?!\s@).)*)$")  # a path may have spaces in it
_LABEL = re.compile(r"\w+: [^\]\n]*")
_CHIP_AT_END = re.compile(rf"{_CHIP.pattern}\Z")
_MAX_SHOWN_LINES, _MAX_SHOWN_CHARACTERS = 30, 3000  # of a typed message in the transcript
_N_FIRST_LINES = 10
_MAX_DROPPED = 8192  # characters
_KNOWN_S = 5.0
_known_files: dict[Path, tuple[float, list[str]]] = {}  # by folder, with the time


class FoldedPart(NamedTuple):
    """A part shown as one line, `label` (`pasted: 40 lines, ~310 tokens`); `end` is exclusive."""

    start: int
    end: int
    label: str


class Composed(NamedTuple):
    """A message as it is sent, and its parts that stood in the input as chips."""

    text: str
    folds: tuple[FoldedPart, ...] = ()


class FoldedTexts:
    """The texts that chips stand for, of all messages since the chat was started."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by chip

    def fold_paste(self, text: str) -> str:
        n_lines = text.count("\n") + 1
        is_short = n_lines <= _MAX_LINES and len(text) <= _MAX_CHARACTERS
        if is_short or not text.strip():
            return text
        return self.fold(f"pasted: {counted(n_lines, 'line')}, {about_tokens(text)}", text)

    def fold(self, label: str, text: str) -> str:
        """Return a chip of its own for a text, unless the text has one already."""
        what, _, about = label.translate({ord("]"): ")", ord("\n"): " "}).partition(": ")
        for chip, known in self._texts.items():
            if known == text and label_of(chip) == f"{what}: {about}":
                return chip
        chip = f"[{what} #{len(self._texts) + 1}: {about}]"
        self._texts[chip] = text
        return chip

    def refold(self, message: Composed) -> str:
        text, end = message.text, 0
        typed = " " * text.startswith("!")  # else it would run in the shell
        for fold in message.folds:
            typed += text[end : fold.start] + self.fold(fold.label, text[fold.start : fold.end])
            end = fold.end
        return typed + text[end:]

    def unfold(self, typed: str) -> Composed:
        """Replace chips by their texts; a chip that was changed is plain text.

        Drops white space around the message, but not at the beginning of a paste.
        """
        typed, text, end = typed.strip(), "", 0
        folds: list[FoldedPart] = []
        for found in _CHIP.finditer(typed):
            if (folded := self._texts.get(found[0])) is not None:
                text += typed[end : found.start()]
                folds.append(FoldedPart(len(text), len(text) + len(folded), label_of(found[0])))
                text, end = text + folded, found.end()
        text = (text + typed[end:]).rstrip()
        if folds:  # the last one may have ended in the white space
            folds[-1] = folds[-1]._replace(end=min(folds[-1].end, len(text)))
        return Composed(text, tuple(folds))

    def text_of(self, chip: str) -> str | None:
        return self._texts.get(chip)


def label_of(chip: str) -> str:
    what, _, about = chip[1:-1].partition(": ")
    return f"{what.partition(' #')[0]}: {about}"


def chip_before(text: str) -> str:
    found = _CHIP_AT_END.search(text)
    return found[0] if found else ""


def folds_of(stats: dict[str, Any], text: str) -> tuple[FoldedPart, ...]:
    folds: list[FoldedPart] = []
    end = 0
    for start, stop, label in stats.get("folds", ()):
        if end <= start < stop <= len(text) and _LABEL.fullmatch(label):
            folds.append(FoldedPart(start, stop, label))
            end = stop
    return tuple(folds)


def shown_parts(message: Composed) -> Iterator[tuple[str, str]]:
    """Yield the parts of a message with their labels, empty for text that is shown as it is."""
    end = 0
    for fold in message.folds:
        yield from _cut(message.text[end : fold.start].strip("\n"))
        yield fold.label, message.text[fold.start : fold.end]
        end = fold.end
    yield from _cut(message.text[end:].strip("\n"))


def _cut(text: str) -> Iterator[tuple[str, str]]:
    n_lines = text.count("\n") + 1
    if n_lines <= _MAX_SHOWN_LINES and len(text) <= _MAX_SHOWN_CHARACTERS:
        if text.strip():
            yield "", text
        return
    lines = text.split("\n", _N_FIRST_LINES)
    shown = "\n".join(lines[:_N_FIRST_LINES])[:_MAX_CHARACTERS]
    rest = text[len(shown) :].removeprefix("\n")
    yield "", shown
    yield f"more: {counted(rest.count(chr(10)) + 1, 'line')}, {about_tokens(rest)}", rest


def about_tokens(text: str) -> str:
    n_bytes = len(text.encode(errors="replace"))
    return f"~{counted(-(-n_bytes // BYTES_PER_TOKEN), 'token')}"


def expanded(path: str) -> Path:
    """Replace the `~` of a path; the name of an unknown user stays."""
    return Path(os.path.expanduser(path))  # pathlib's raises for that one


def current_folder() -> Path:
    """Return the user's folder; `.`, which is empty, if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def dropped_paths(text: str) -> list[str]:
    """Return the paths of files dropped on the terminal, if a paste has nothing else."""
    text = text.strip()
    if not text or len(text) > _MAX_DROPPED or "\0" in text:
        return []
    if _is_there(text):
        return [text]
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError:  # a quote that is not closed
        return []
    paths = [
        unquote(word.removeprefix("file://")) if word.startswith("file://") else word.strip('"')
        for word in words
    ]
    return paths if all(map(_is_there, paths)) else []


def _is_there(path: str) -> bool:
    place = expanded(path)
    return place.is_absolute() and os.path.exists(place)


def find_files(typed: str, folder: Path, limit: int = 8) -> list[str]:
    """Complete the path after an `@`: folders end in a slash, hidden files need a dot.

    `typed` is relative to `folder`, absolute, or below `~`, or parts of a path in `folder`; returns
    `limit` paths at most.
    """
    found = _completions(typed, folder)
    if len(typed) > 1 and not typed.startswith(("/", "~", ".")):
        parts = typed.lower().replace(os.sep, "/").split("/")
        inside = [path for path in _files_in(folder) if all(p in path.lower() for p in parts)]
        found += sorted(inside, key=lambda path: (parts[-1] not in path.lower().rpartition("/")[2],
                                                  len(path)))  # fmt: skip
    return list(dict.fromkeys(found))[:limit]


def _files_in(folder: Path) -> list[str]:
    """Return the paths of files, as git knows them, or as git would know them."""
    now_s = time.monotonic()
    if folder in _known_files and now_s - _known_files[folder][0] < _KNOWN_S:
        return _known_files[folder][1]
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=0.3, check=True)
        files = os.fsdecode(done.stdout).split("\0")[:-1]
    except (OSError, subprocess.SubprocessError):
        shown = (path for path, is_ignored in Walk(folder) if not is_ignored)
        files = [path.relative_to(folder).as_posix() for path in shown]
    _known_files[folder] = now_s, files[:MAX_SEEN]
    return files[:MAX_SEEN]


def _completions(typed: str, folder: Path) -> list[str]:
    parent, slash, name = typed.replace(os.sep, "/").rpartition("/")
    place = folder / expanded(parent + slash) if slash else folder
    try:
        entries = sorted(place.iterdir(), key=lambda path: path.name.lower())
    except OSError:
        return []
    return [
        f"{parent}{slash}{entry.name}{'/' if os.path.isdir(entry) else ''}"
        for entry in entries
        if entry.name.lower().startswith(name.lower())
        and (name.startswith(".") or not entry.name.startswith("."))
    ]
