"""Walk a folder as git would: without ignored and hidden files, by the rules of `.gitignore`."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    _Rules = list[tuple[Path, GitIgnoreSpec]]

MAX_SEEN = 20_000  # files and folders
_NEVER = ("node_modules", "__pycache__")


class Walk:
    """Yields the files below a resolved folder, sorted, and whether each one is ignored.

    Ignored folders are not entered. `n_unreadable` counts folders; not `is_whole` after `MAX_SEEN`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.n_unreadable = 0
        self.is_whole = True

    def __iter__(self) -> Iterator[tuple[Path, bool]]:
        todo, n_seen = [(self._folder, _rules_above(self._folder))], 0
        while todo:
            place, rules = todo.pop()
            if spec := _rules_of(place):
                rules = [*rules, (place, spec)]
            try:
                entries = sorted(os.scandir(place), key=lambda entry: entry.name)
            except OSError:
                self.n_unreadable += 1
                continue
            inner = []
            for entry in entries:
                n_seen += 1
                if n_seen > MAX_SEEN:
                    self.is_whole = False
                    return
                path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
                is_ignored = _is_ignored(path, rules, is_folder=is_folder)
                if not is_folder:
                    yield path, is_ignored
                elif not is_ignored:
                    inner.append((path, rules))
            todo += reversed(inner)


def is_left_out(path: Path, folder: Path) -> bool:
    place, rules = folder, _rules_above(folder)
    for name in path.relative_to(folder).parts:
        if spec := _rules_of(place):
            rules = [*rules, (place, spec)]
        place /= name
        if _is_ignored(place, rules, is_folder=place != path or place.is_dir()):
            return True
    return False


def _is_ignored(path: Path, rules: "_Rules", *, is_folder: bool) -> bool:
    if (
        path.name.startswith(".")
        or path.name in _NEVER
        or (os.path.islink(path) and os.path.isdir(path))
    ):
        return True
    for base, spec in reversed(rules):
        name = path.relative_to(base).as_posix() + "/" * is_folder
        if (is_included := spec.check_file(name).include) is not None:
            return is_included
    return False


def _rules_above(folder: Path) -> "_Rules":
    root = next((place for place in folder.parents if os.path.exists(place / ".git")), None)
    if root is None or os.path.exists(folder / ".git"):
        return []
    outer = [place for place in reversed(folder.parents) if place.is_relative_to(root)]
    rules = [(place, spec) for place in outer if (spec := _rules_of(place))]
    return [] if _is_ignored(folder, rules, is_folder=True) else rules


def _rules_of(folder: Path) -> "GitIgnoreSpec | None":
    """Return the rules of a folder's `.gitignore`; like git, skip invalid lines."""
    from pathspec import GitIgnoreSpec

    def is_rule(line: str) -> bool:
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error):
            return False
        return True

    try:
        text = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return GitIgnoreSpec.from_lines(filter(is_rule, text.splitlines()))
