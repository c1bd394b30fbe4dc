"""Reads attachments: a file, a folder without ignored and binary files, or matching files.

Finds images that a text names, too.
"""

import asyncio
import os
import re
import stat
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.talk.documents import (
    IMAGE,
    MAX_TEXT_BYTES,
    Document,
    UnreadableFile,
    check,
    fenced,
    is_document,
    is_image,
    read_document,
    read_text,
)
from gptoss_local.talk.ignored import MAX_SEEN, Walk
from tui.paste import BYTES_PER_TOKEN, expanded, find_files

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MAX_TOKENS = 98_304  # of a folder: three quarters of the longest context
_MAX_BYTES = _MAX_TOKENS * BYTES_PER_TOKEN
_IMAGE_END = re.compile(rf"{IMAGE}(?![\w.])", re.IGNORECASE)
_LOOK_S = 0.1
_WILD = re.compile(r"[*?\[]")
_CODE = re.compile(  # in fences, and decorators
    r"^ {0,3}(```+|~~~+)[\s\S]*?(?:^ {0,3}\1|\Z)"
    r"|(?:^[^\S\n]*@[\w.]+(?:\(.*\))?[^\S\n]*\n)+"
    r"(?=\s*(?:async|def|class|public|private|protected|static|export|interface|fun)\b)",
    re.MULTILINE,
)
_AT = re.compile(r"""(?:\A|(?<=[\s("'“‘«（「，。：]))@(?:"([^"\n]+)"|'([^'\n]+)'|(?=[^\s@]))""")
_WORD = re.compile(r"(?:\\.|\S)+")
_AFTER = re.compile(r"""[).,;:!?"'”’»）」，。：；！？…]+$""")
_LOOKS_LIKE_FILE = re.compile(r"^\.{0,2}/|~/|\.\w{1,5}$|[*?]")
_MOST_WORDS = 12  # of a name with spaces
_OVER_LIMIT = f"over the limit of {_MAX_TOKENS:,} tokens"


class Attachment(NamedTuple):
    """The text that stands for a file or a folder in a message."""

    what: str  # file: notes.md
    length: str  # 4 lines
    text: str
    note: str = ""  # names the files left out; follows the length


def is_pattern(typed: str) -> bool:
    return bool(_WILD.search(typed))


def attach(typed: str, folder: Path, stop: Event) -> Attachment:
    """Read the file, the folder or the matching files until `stop` is set.

    `typed` is absolute, or relative to `folder`; its `~` is expanded already. Raises UsageError if
    there is nothing to attach, or reading was stopped.
    """
    path = folder / typed
    if os.path.isdir(path):  # pathlib's raises for a name that is too long
        return _Folder(path, typed.rstrip("/") or typed, "").read(stop)
    if is_pattern(typed) and not os.path.exists(path):
        base, pattern = _split_pattern(typed)
        return _Folder(folder / base, base, pattern).read(stop)
    try:
        found = read_file(path, stop)
    except UnreadableFile as error:
        raise UsageError(f"{path} {error.why}", hint=error.hint) from error
    return Attachment(f"{found.kind}: {path.name}", found.length, fenced(str(path), found.text))


class TypedPath(NamedTuple):
    """A path after an `@` in a message, to be attached in place of it, or refused."""

    start: int
    end: int
    path: str  # its `~` is expanded
    refusal: str = ""


def typed_path(text: str, folder: Path, refused: Container[str]) -> TypedPath | None:
    """Return the first `@` with a file that is there, or with a word that looks like one.

    The name may be in quotes, and its spaces escaped or not. Any other word after an `@` is text,
    as are paths that were `refused`.
    """
    seen = _CODE.sub(lambda code: "`" * len(code[0]), text)
    found = (_path_at(seen, at, folder) for at in _AT.finditer(seen))
    paths = (path for path in found if path and not is_image(path.path))
    return next((path for path in paths if path.path not in refused), None)


def _path_at(text: str, at: re.Match[str], folder: Path) -> TypedPath | None:
    names = [name] if (name := at[1] or at[2]) else _names(text[at.end() :].partition("\n")[0])
    for written in names:
        name = re.sub(r"\\(.)", r"\1", written) if os.name != "nt" else written
        end = at.end() + (0 if at[1] or at[2] else len(written))
        found = TypedPath(at.start(), end, str(expanded(name)))
        if os.path.exists(place := folder / found.path):
            is_all = os.path.realpath(place) in ("/", os.path.expanduser("~"))
            said = f"{name} is too much to attach"
            return found._replace(refusal=said) if is_all else found
    if _LOOKS_LIKE_FILE.search(name) or os.path.isdir(folder / name.split("/")[0]):
        near = "".join(f"; there is {path}" for path in find_files(name, folder, 1))
        said = "" if is_pattern(name) else f"There is no file {name}{near}"
        return found._replace(refusal=said)
    return None


def _names(line: str) -> list[str]:
    """Return the names with which a line may begin, the longest first, without spaces the last."""
    ends = [word.end() for word in _WORD.finditer(line.partition(" @")[0])][:_MOST_WORDS]
    names = (line[:end] for end in ends[::-1])
    return [each for name in names for each in (name, _AFTER.sub("", name)) if each]


def _split_pattern(typed: str) -> tuple[str, str]:
    parts = typed.replace(os.sep, "/").split("/")
    n_plain = next(n for n, part in enumerate(parts) if is_pattern(part))
    base = "/".join(parts[:n_plain])
    return base or ("/" if typed.startswith("/") else "."), "/".join(parts[n_plain:])


class _Folder:
    """A folder, for its text files or for those that match a relative `pattern`."""

    def __init__(self, folder: Path, name: str, pattern: str) -> None:
        try:
            self._folder = folder.resolve()
        except OSError as error:  # the current folder was removed
            raise UsageError(f"{name} cannot be read: {error.strerror}") from error
        self._name = name
        self._pattern = pattern
        self._n_left_out: Counter[str] = Counter()  # by the reason

    def read(self, stop: Event) -> Attachment:
        texts: list[str] = []
        n_bytes = 0
        for path in self._walk(stop):
            inside = path.relative_to(self._folder).as_posix()
            name = inside if self._name == "." else f"{self._name}/{inside}"
            try:
                text = self._read_file(path, name, _MAX_BYTES - n_bytes, stop)
            except UnreadableFile as error:
                self._n_left_out[error.kind] += 1
            else:
                texts.append(text)
                n_bytes += len(text.encode())
        shown = f"{self._name}/{self._pattern}".removeprefix("./") if self._pattern else self._name
        counts = ", ".join(f"{n:,} {why}" for why, n in self._n_left_out.items())
        left_out = f"Left out: {counts}." if counts else ""
        if not texts:
            raise UsageError(f"{shown} has no text files to attach", hint=left_out)
        n_files = counted(len(texts), "file")
        whole = "\n".join((f"{shown}: {n_files}. {left_out}".rstrip() + "\n", *texts))
        return Attachment(
            f"{'files' if self._pattern else 'folder'}: {shown}",
            n_files,
            whole,
            f", of at most {_MAX_TOKENS:,}. {left_out}".rstrip(),
        )

    def _read_file(self, path: Path, name: str, n_left: int, stop: Event) -> str:
        try:
            n_bytes = 0 if is_document(path.name) else path.stat().st_size
        except OSError as error:
            raise UnreadableFile("cannot be read") from error
        if n_left < n_bytes <= MAX_TEXT_BYTES:
            raise UnreadableFile("is too much", kind=_OVER_LIMIT)
        text = fenced(name, read_file(path, stop).text)
        if len(text.encode()) > n_left:
            raise UnreadableFile("is too much", kind=_OVER_LIMIT)
        return text

    def _walk(self, stop: Event) -> Iterator[Path]:
        from pathspec import GitIgnoreSpec  # PERF: 50 ms

        try:
            matches = GitIgnoreSpec.from_lines([f"/{self._pattern}"]) if self._pattern else None
        except (ValueError, re.error) as error:
            hint = "A pattern is as in .gitignore: *.py, src/**/*.md, [a-z].txt."
            raise UsageError(f"{self._pattern} is not a pattern", hint=hint) from error
        walk = Walk(self._folder)
        for path, is_ignored in walk:
            if stop.is_set():
                raise UsageError(f"{self._name} was not read to its end")
            if self._is_wanted(path, matches, is_ignored=is_ignored):
                yield path
        if walk.n_unreadable:
            self._n_left_out["that cannot be read"] += walk.n_unreadable
        if not walk.is_whole:
            self._n_left_out[f"or more after the first {MAX_SEEN:,}"] += 1

    def _is_wanted(self, path: Path, matches: "GitIgnoreSpec | None", *, is_ignored: bool) -> bool:
        if matches is None:
            self._n_left_out.update({"ignored or hidden": 1} if is_ignored else {})
            return not is_ignored
        is_hidden = path.name.startswith(".") and not self._pattern.rpartition("/")[2].startswith(
            "."
        )
        return not is_hidden and matches.match_file(path.relative_to(self._folder).as_posix())


def image_in(text: str, folder: Path) -> Path | None:
    """Return the first path in a text that leads to an existing image.

    Paths may have spaces, escaped or not, be in quotes, or begin with `file://`.
    """
    for found in _IMAGE_END.finditer(text):
        before = text[: found.end()].rpartition("\n")[2]
        starts = [match.end() for match in re.finditer(r"^|[\s\"'@(]|file://", before)]
        for start in starts[-12:]:  # the longest name first
            name = re.sub(r"\\(.)", r"\1", before[start:]) if os.name != "nt" else before[start:]
            path = folder / os.path.expanduser(name)
            if os.path.isfile(path):  # pathlib's raises for a name that is too long
                return path
    return None


def image_note(text: str, folder: Path) -> str:
    image = image_in(text, folder)
    return f"{image.name} is an image. gpt-oss reads text only." if image else ""


def read_file(path: Path, stop: Event) -> Document:
    """Read the text of a file, or raise UnreadableFile; `stop` ends reading a document."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("is not a file")
        check(path.name, status.st_size)
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from error
    if not is_document(path.name):
        return read_text(data)

    async def read() -> Document:
        work = asyncio.create_task(read_document(path.name, data))
        while not work.done():
            await asyncio.wait((work,), timeout=_LOOK_S)
            if stop.is_set():
                work.cancel()
        return work.result()

    try:
        return asyncio.run(read())
    except asyncio.CancelledError:
        raise UnreadableFile("was not read to its end") from None
