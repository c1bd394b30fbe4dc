"""Changes a program's settings file without loss: everything else in it stays, comments too.

Knows JSON (with comments and trailing commas) and YAML; knows no program.
"""

import difflib
import io
import json
import os
import re
import shutil
import time
from collections.abc import Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gptoss_local.base.errors import UsageError
from gptoss_local.base.whole_file import write_whole

Format = Literal["json", "yaml"]
_NO_FILE = ".none.bak"  # the backup of a file that was not there
_GAP = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
GONE = object()
"""In place of a value: remove its name."""
_WORDS = ("null", "true", "false", "Infinity", "NaN")


@dataclass(frozen=True)
class ListEntry:
    """An entry of a list, which replaces the one with the same value of `key`, or is added."""

    key: str
    value: Mapping[str, Any]
    is_first: bool = False


@dataclass(frozen=True)
class Default:
    """A value for a missing name; one that the user or the program has set stays."""

    value: Any


def merge(text: str, wanted: Mapping[str, Any], form: Format) -> str:
    """Return the text with the wanted values in it; the same text if it has them.

    An empty text stands for no file. `wanted` nests mappings down to plain values, `ListEntry`,
    `Default` or `GONE`; a `ListEntry` without a name is one of a file that is a list. Raises
    UsageError if the text cannot be read, or has another kind of value in the place.
    """
    return _merge_json(text, wanted) if form == "json" else _merge_yaml(text, wanted)


def _put(data: MutableMapping[str, Any], wanted: Mapping[str, Any], where: str = "") -> None:
    for key, value in wanted.items():
        place, present = f"{where}{key}", data.get(key)
        if value is GONE:
            data.pop(key, None)
        elif isinstance(value, Default):
            if present is None:
                data[key] = value.value
        elif isinstance(value, ListEntry):
            if present is None:
                present = data[key] = []
            _require(present, MutableSequence, f"{place or 'the file'} is not a list")
            _put_item(present, value, place)
        elif isinstance(value, Mapping):
            if present is None:
                present = data[key] = {}
            _require(present, MutableMapping, f"{place} has no names and values")
            _put(present, value, f"{place}.")
        elif not _is_same(present, value):
            data[key] = value


def _put_item(entries: MutableSequence[Any], item: ListEntry, place: str) -> None:
    for old in entries:
        if isinstance(old, MutableMapping) and old.get(item.key) == item.value[item.key]:
            return _put(old, item.value, f"{place}.")
    entry: dict[str, Any] = {}
    _put(entry, item.value, f"{place}.")
    entries.insert(0 if item.is_first else len(entries), entry)


def _is_same(present: Any, value: Any) -> bool:
    return bool(present == value) and isinstance(present, bool) == isinstance(value, bool)


def _require(value: Any, kind: type, otherwise: str) -> None:
    if not isinstance(value, kind):
        raise UsageError(otherwise)


# YAML


def _merge_yaml(text: str, wanted: Mapping[str, Any]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20  # no line is wrapped
    if not re.search(r"^- ", text, re.MULTILINE):  # else lists stand as far left as their keys
        yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        data, before = yaml.load(text), YAML(typ="safe").load(text)
    except YAMLError as error:
        raise UsageError(str(error)) from error
    if data is None:  # nothing but comments
        data, before = {}, None
    _require(data, MutableMapping, "the file has no names and values")
    _put(data, wanted)
    if data == before:
        return text
    out = io.StringIO()
    yaml.dump(data, out)
    if before is None and text.strip():
        return f"{text.rstrip()}\n{out.getvalue()}"
    for comment in re.findall(r"^[ \t]*#.*$", text, re.MULTILINE):
        # ruamel.yaml drops a comment after an empty item of a list within a list
        if comment.strip() not in out.getvalue():
            raise UsageError(f"the comment {comment.strip()!r} would be lost")
    return out.getvalue()


# JSON: the text is parsed twice, as data and as nodes with places; where the two differ once the
# settings are in the data, the text is changed.


def _merge_json(text: str, wanted: Mapping[str, Any]) -> str:
    from json5.loader import ModelLoader, loads
    from json5.utils import JSON5DecodeError

    text = text if text.strip() else "[]\n" if "" in wanted else "{}\n"
    try:
        root, data = loads(text, loader=ModelLoader()).value, loads(text)
    except JSON5DecodeError as error:
        raise UsageError(str(error).replace("\t", "")) from error
    if "" in wanted:
        _put({"": data}, wanted)
    else:
        _require(data, MutableMapping, "the file has no names and values")
        _put(data, wanted)
    edits = _Edits(text)
    edits.change(root, data, 0)
    return edits.applied()


class _Edits:
    def __init__(self, text: str) -> None:
        self._text = text
        self._edits: list[tuple[int, int, str]] = []
        found = re.search(r"\n([ \t]+)\"", text)
        self._unit = found[1] if found else "  "

    def applied(self) -> str:
        text = self._text
        for start, end, new in sorted(self._edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def change(self, node: Any, value: Any, depth: int) -> None:
        """Change a node of json5's model by as small an edit as possible."""
        kind = type(node).__name__
        if kind == "JSONObject" and isinstance(value, dict):
            keys = [_plain(self._text_of(key)) for key in node.keys]
            for n, (key, child) in enumerate(zip(keys, node.values, strict=True)):
                if key in value:
                    self.change(child, value[key], depth + 1)
                else:
                    self._remove(node, n)
            added = {key: each for key, each in value.items() if key not in keys}
            members = [f"{json.dumps(k)}: {self._json(v, depth + 1)}" for k, v in added.items()]
            self._add(node, members, depth)
        elif kind == "JSONArray" and isinstance(value, list) and len(value) >= len(node.values):
            for child, each in zip(node.values, value, strict=False):
                self.change(child, each, depth + 1)
            added_items = value[len(node.values) :]
            self._add(node, [self._json(each, depth + 1) for each in added_items], depth)
        elif not _is_same(_plain(self._text_of(node)), value):  # also a list that gets shorter
            self._edits.append((*_span(node), self._json(value, depth)))

    def _add(self, node: Any, members: list[str], depth: int) -> None:
        """Add members before the closing bracket, after any comment there."""
        if not members:
            return
        start, end = _span(node)
        close = end - 1
        at = len(self._text[:close].rstrip())
        is_on_one_line = "\n" not in self._text[start:end]
        tail = f"\n{self._unit * depth}" if is_on_one_line else self._text[at:close]
        if "\n" not in tail:
            tail = f"\n{self._unit * depth}"
        before = f"\n{self._unit * (depth + 1)}"
        new = ",".join(f"{before}{member}" for member in members) + tail
        if node.values and node.trailing_comma is None:
            last = _span(node.values[-1])[1]
            if last == at:
                new = f",{new}"
            else:
                self._edits.append((last, last, ","))
        self._edits.append((at, close, new))

    def _remove(self, node: Any, n: int) -> None:
        """Remove a member, its comma, and lines left empty."""
        start, end = _span(node.keys[n])[0], _span(node.values[n])[1]
        comma = self._comma(end)
        if comma is None and n > 0:
            comma = self._comma(_span(node.values[n - 1])[1])
        if comma is not None:
            self._edits.append((comma, comma + 1, ""))
        first, last = self._text.rfind("\n", 0, start) + 1, self._text.find("\n", end)
        if first > 0 and f"{self._text[first:start]}{self._text[end:last]}".strip() in ("", ","):
            start, end = first, last + 1
            self._edits = [each for each in self._edits if not start <= each[0] < end]
        self._edits.append((start, end, ""))

    def _comma(self, at: int) -> int | None:
        found = _GAP.match(self._text, at)
        end = found.end() if found else at
        return end if self._text[end : end + 1] == "," else None

    def _json(self, value: Any, depth: int) -> str:
        text = json.dumps(value, indent=self._unit, ensure_ascii=False)
        return text.replace("\n", f"\n{self._unit * depth}")

    def _text_of(self, node: Any) -> str:
        start, end = _span(node)
        return self._text[start:end]


def _span(node: Any) -> tuple[int, int]:
    return node._tok.index, node._end_tok.end


def _plain(text: str) -> Any:
    from json5.loader import loads

    return loads(text) if text[:1] in "{[\"'-+.0123456789" or text in _WORDS else text


@dataclass(frozen=True)
class SettingsFile:
    """A file and the settings to merge into it."""

    path: Path
    wanted: Mapping[str, Any]

    @property
    def form(self) -> Format:
        return "yaml" if self.path.suffix in (".yaml", ".yml") else "json"


@dataclass(frozen=True)
class Change:
    """A file's text before and after; `before` is None if there is no file."""

    path: Path
    before: str | None
    after: str

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        before, after = (self.before or "").splitlines(), self.after.splitlines()
        name = str(self.path)
        return "\n".join(difflib.unified_diff(before, after, name, name, lineterm="", n=2))


def read_change(file: SettingsFile) -> Change:
    try:
        before = file.path.read_bytes().decode() if file.path.exists() else None
        text = before or ""
        mark, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
        is_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        after = merge(text.replace("\r\n", "\n") if is_crlf else text, file.wanted, file.form)
    except (UsageError, UnicodeDecodeError) as error:
        said = error.message if isinstance(error, UsageError) else "it is not UTF-8"
        raise UsageError(
            f"cannot change {file.path}: {said}",
            hint="Nothing was changed. Correct the file, or move it out of the way.",
        ) from error
    return Change(file.path, before, mark + (after.replace("\n", "\r\n") if is_crlf else after))


def make_change(change: Change) -> Path:
    """Write a file whole or not at all; return its backup, empty if there was no file.

    A link stays a link, and the file keeps its mode; only its owner can read a new one.
    """
    path = Path(os.path.realpath(change.path))
    now = path.read_bytes() if path.exists() else None
    if now != (None if change.before is None else change.before.encode()):
        raise UsageError(f"{path} has just been changed by another program", hint="Try again.")
    backup = _back_up(path)
    write_whole(path, change.after)
    return backup


def read_undo(path: Path) -> Change:
    """Return the change back to a file before its first change here. UsageError: there was none."""
    real = Path(os.path.realpath(path))
    if not (backups := _backups(real)):
        raise UsageError(f"there is no backup of {path}: nothing here has changed it")
    before = real.read_text(encoding="utf-8") if real.exists() else None
    return Change(real, before, backups[0].read_text(encoding="utf-8"))


def make_undo(change: Change) -> None:
    """Put a file back, or remove it if there was none, and then its backups."""
    backups = _backups(change.path)
    if backups[0].name.endswith(_NO_FILE):
        change.path.unlink(missing_ok=True)
    else:
        write_whole(change.path, change.after)
    for backup in backups:
        backup.unlink()


def _backups(path: Path) -> list[Path]:
    pattern = r"\.(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-(\d+))?(\.none)?\.bak"
    files = path.parent.iterdir() if path.parent.is_dir() else ()
    found = [
        (dated[1], int(dated[2] or 0), dated[3] is None, each)
        for each in files
        if (dated := re.fullmatch(re.escape(path.name) + pattern, each.name))
    ]
    return [each for *_, each in sorted(found)]


def _back_up(path: Path) -> Path:
    """Copy a file to a new dated name, or note that there is none."""
    is_there = path.exists()
    end = ".bak" if is_there else _NO_FILE
    base = f"{path.name}.{time.strftime('%Y-%m-%dT%H-%M-%S')}"
    backup, n = path.with_name(base + end), 1
    while backup.exists():
        backup, n = path.with_name(f"{base}-{n}{end}"), n + 1
    if is_there:
        shutil.copy2(path, backup)
    else:
        backup.parent.mkdir(parents=True, exist_ok=True)
        backup.touch()
    return backup
