"""Long texts in the input are folded to a chip; what is sent has the whole text. Pure."""

import os
import re
from pathlib import Path

from gptoss_local.errors import UsageError

_MAX_LINES = 8
_MAX_CHARACTERS = 1000
_MAX_FILE_BYTES = 1 << 20
_BYTES_PER_TOKEN = 4  # of o200k: 4.1 in code, 4.7 in Chinese, 5.1 in English
_CHIP = re.compile(r"\[(?:pasted|file) #(\d+)[^\]\n]*\]")


class FoldedTexts:
    """The texts behind the chips of one message."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def fold_paste(self, text: str) -> str:
        """Return what stands in the input for a paste: the text itself if it is short."""
        n_lines = text.count("\n") + 1
        if n_lines <= _MAX_LINES and len(text) <= _MAX_CHARACTERS:
            return text
        return self._chip("pasted", _lines(n_lines), text)

    def fold_file(self, path: Path) -> str:
        """Return a chip for a text file, which is sent with its name in a fence.

        Raises:
            UsageError: it cannot be read, is no text, or is too large.
        """
        text = read_text_file(path)
        n_lines = text.count("\n") + 1
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        end = "" if text.endswith("\n") else "\n"
        whole = f"{path}:\n{fence}\n{text}{end}{fence}\n"
        return self._chip("file", f"{path.name}, {_lines(n_lines)}", whole)

    def unfold(self, text: str) -> str:
        """Put the texts in the place of their chips; a chip that was changed is plain text."""
        return _CHIP.sub(lambda found: self._texts.get(int(found[1]), found[0]), text)

    def _chip(self, what: str, about: str, text: str) -> str:
        number = len(self._texts) + 1
        self._texts[number] = text
        n_tokens = -(-len(text.encode()) // _BYTES_PER_TOKEN)
        about = about.translate({ord("]"): ")"})
        return f"[{what} #{number}: {about}, ~{n_tokens:,} tokens]"


def _lines(n: int) -> str:
    return "1 line" if n == 1 else f"{n:,} lines"


def read_text_file(path: Path) -> str:
    """Read a text file that is to be attached.

    Raises:
        UsageError: it cannot be read, is no text, or is too large.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than 1 MiB", hint="Attach a part of it.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not a text file", hint="gpt-oss reads text only, no images."
        ) from error


def expanded(path: str) -> Path:
    """A path with its `~` replaced; one of a user who is not there stays as it is."""
    return Path(os.path.expanduser(path))  # pathlib's raises for that one


def current_folder() -> Path:
    """Where the user is; `.` if that was removed meanwhile, in which there is nothing."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def find_files(typed: str, folder: Path, limit: int = 8) -> list[str]:
    """Complete the path behind an `@`: what begins so, folders with a slash; hidden ones if asked.

    Args:
        typed: Relative to `folder`, absolute, or below `~`.
        folder: Where the user is.
        limit: Paths at most.
    """
    parent, slash, name = typed.rpartition("/")
    place = folder / expanded(parent + slash) if slash else folder
    try:
        entries = sorted(place.iterdir(), key=lambda path: path.name.lower())
    except OSError:
        return []
    found = [
        f"{parent}{slash}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if entry.name.lower().startswith(name.lower())
        and (name.startswith(".") or not entry.name.startswith("."))
    ]
    return found[:limit]
