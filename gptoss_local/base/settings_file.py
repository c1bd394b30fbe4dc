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
GONE = object()  # in place of a value: remove its name


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


# JSON: json-five's model keeps the spaces and comments around each node. Where it differs from the
# data once the settings are in there, nodes are changed, added and removed.


def _merge_json(text: str, wanted: Mapping[str, Any]) -> str:
    from json5.dumper import ModelDumper, dumps
    from json5.loader import ModelLoader, loads
    from json5.utils import JSON5DecodeError

    text = text if text.strip() else "[]\n" if "" in wanted else "{}\n"
    try:
        model, data = loads(text, loader=ModelLoader()), loads(text)
    except JSON5DecodeError as error:
        raise UsageError(str(error).replace("\t", "")) from error
    if "" in wanted:
        _put({"": data}, wanted)
    else:
        _require(data, MutableMapping, "the file has no names and values")
        _put(data, wanted)
    found = re.search(r"\n([ \t]+)\"", text)
    model.value = _Nodes(found[1] if found else "  ").changed(model.value, data, 0)
    dumper: Any = ModelDumper()  # no BaseDumper for the checker
    return dumps(model, dumper=dumper)


class _Nodes:
    def __init__(self, indent: str) -> None:
        self._indent = indent

    def changed(self, node: Any, value: Any, depth: int) -> Any:
        """Return the node with another value; the less of it changes, the better."""
        from json5.loader import DefaultLoader
        from json5.model import JSONArray, JSONObject

        if isinstance(node, JSONObject) and isinstance(value, dict):
            names = [DefaultLoader().load(key) for key in node.keys]
            for n in reversed(range(len(names))):
                if names[n] in value:
                    node.values[n] = self.changed(node.values[n], value[names[n]], depth + 1)
                else:
                    _remove(node, n)
            added = {key: each for key, each in value.items() if key not in names}
            self._add(node, list(added), list(added.values()), depth)
            return node
        n_old = len(node.values) if isinstance(node, JSONArray) else 0
        if isinstance(node, JSONArray) and isinstance(value, list) and len(value) >= n_old:
            for n in range(n_old):
                node.values[n] = self.changed(node.values[n], value[n], depth + 1)
            self._add(node, [], value[n_old:], depth)
            return node
        if _is_same(DefaultLoader().load(node), value):
            return node
        new = self._node(value, depth)
        new.wsc_before, new.wsc_after = node.wsc_before, node.wsc_after
        return new

    def _add(self, node: Any, keys: list[str], values: list[Any], depth: int) -> None:
        """Add members before the closing bracket, after any comment there."""
        if not values:
            return
        gap = node.leading_wsc
        if node.values:
            gap = (node.trailing_comma or node.values[-1]).wsc_after
        comments = _text_of(gap).rstrip()
        end = _text_of(gap)[len(comments) :]
        gap.clear()
        node.trailing_comma = None
        added = [self._node(each, depth + 1) for each in values]
        for each in added:
            each.wsc_before = [" "]
        firsts = [self._node(key, 0) for key in keys] or added
        for first in firsts:
            first.wsc_before = [f"\n{self._indent * (depth + 1)}"]
        firsts[0].wsc_before.insert(0, comments)
        added[-1].wsc_after = [end if "\n" in end else f"\n{self._indent * depth}"]
        node.values += added
        if keys:
            node.keys += firsts

    def _node(self, value: Any, depth: int) -> Any:
        from json5.model import DoubleQuotedString

        text = json.dumps(value, indent=self._indent, ensure_ascii=False)
        return DoubleQuotedString("", text.replace("\n", f"\n{self._indent * depth}"))


def _remove(node: Any, n: int) -> None:
    """Remove a member; comments around it stay."""
    key, value, comma = node.keys.pop(n), node.values.pop(n), node.trailing_comma
    before = (node.leading_wsc if n == 0 else []) + key.wsc_before
    node.leading_wsc = node.leading_wsc * (n > 0)
    if n < len(node.values):
        node.keys[n].wsc_before = _gap(before, value.wsc_after, node.keys[n].wsc_before)
    elif comma and node.values:
        comma.wsc_after = _gap(before, value.wsc_after, comma.wsc_after)
    elif node.values:
        node.values[-1].wsc_after += _gap(before, value.wsc_after)
    else:
        node.leading_wsc = _gap(before, value.wsc_after, *([comma.wsc_after] if comma else []))
        node.trailing_comma = None


def _gap(*parts: list[Any]) -> list[str]:
    """Join comments and spaces; spaces alone stay in the last part only."""
    *others, text = map(_text_of, parts)
    for each in filter(str.strip, reversed(others)):
        text = (each.rstrip() if re.match(r"[ \t]*\n", text) else each) + text
    return [text]


def _text_of(spaces: list[Any]) -> str:
    return "".join(each if isinstance(each, str) else each.value for each in spaces)


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
