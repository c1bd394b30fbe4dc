"""Changes of a file: drawn so that they are unambiguous, and told in words or as patches.

A line that a change names occurs once in its file, and not as a part of other lines either. New
lines are indented like the line that they replace or stand next to.
"""

import re
from dataclasses import dataclass

from bench.nano.data.echo import fenced
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks

EDIT = banks("edit")

_SETTING = re.compile(r'(\s*"?([A-Za-z_][\w.-]*)"?(?: = |=|: ))("[^"`]*"|[\w.+-]+)([,;]?)')


@dataclass(frozen=True, slots=True)
class Change:
    """Lines `start` to `end` of a file become `new`; `kind` is how to tell it in words."""

    kind: str
    start: int
    end: int
    new: tuple[str, ...]

    def apply(self, lines: list[str]) -> list[str]:
        return [*lines[: self.start], *self.new, *lines[self.end :]]


def draw_change(source: Source, lines: list[str]) -> Change | None:
    """Draw a change; none if no line of the file is found that occurs once."""
    if source.chance(0.2) and (change := _draw_setting(source, lines)):
        return change
    text = "\n".join(lines)
    drawn = source.some(range(len(lines)), 30, 30)
    at = next((i for i in drawn if lines[i].strip() and text.count(lines[i].strip()) == 1), -1)
    if at < 0:
        return None
    old = lines[at]
    kind = source.choice(("replace", "replace", "after", "before", "delete"))
    if old.rstrip().endswith((":", "{", "(", "[")) and kind == "after":
        kind = "before"
    indentation = old[: len(old) - len(old.lstrip())]
    new = indentation + _draw_line(source, old.strip())
    if kind == "replace":
        return Change(kind, at, at + 1, (new,))
    if kind == "delete":
        return Change(kind, at, at + 1, ())
    start = at + 1 if kind == "after" else at
    return Change(kind, start, start, (new,))


def _draw_line(source: Source, old: str) -> str:
    """Draw a line that may stand for or beside another one; often it resembles it."""
    parts = re.findall(r"[A-Za-z_]\w*|\d+", old)
    if parts and source.chance(0.6):
        part = source.choice(parts)
        other = str(source.rng.randrange(1000)) if part.isdigit() else source.identifier()
        new = old.replace(part, other)
    else:
        new = source.line()
    new = " ".join(new.replace("```", "``").split())
    return new if new != old else f"{new} {source.invented()}"


def _draw_setting(source: Source, lines: list[str]) -> Change | None:
    """Draw another value of a setting, or of a variable, whose name stands in one line only."""
    matches = [(i, match) for i, line in enumerate(lines) if (match := _SETTING.fullmatch(line))]
    text = "\n".join(lines)
    matches = [(i, match) for i, match in matches if text.count(match[2]) == 1]
    if not matches:
        return None
    at, match = source.choice(matches)
    if match[3].startswith('"'):
        value = '"' + source.line().translate(dict.fromkeys(map(ord, '"`\\'))).strip() + '"'
    else:
        value = source.choice((str(source.rng.randrange(100000)), source.token_word()))
    return Change("set", at, at + 1, (match[1] + value + match[4],))


def describe(source: Source, change: Change, lines: list[str], path: str) -> str:
    """Ask for a change in one of the ways that people and agents do."""
    if change.kind == "set":
        return _describe_setting(source, change, lines)
    form = source.rng.random()
    if form < 0.2:
        return phrase(
            source,
            source.choice(EDIT.PATCH),
            ask=False,
            patch=_search_replace(source, change, lines),
        )
    if form < 0.4:
        patch = _unified_diff(source, change, lines, path)
        patch = fenced(patch, "diff") if source.chance(0.6) else patch
        return phrase(source, source.choice(EDIT.PATCH), ask=False, patch=patch)
    old = lines[change.start - 1 if change.kind == "after" else change.start]
    new = change.new[0] if change.new else ""
    if change.kind == "replace" and source.chance(0.25):
        return phrase(source, source.choice(EDIT.OLD_NEW), old=fenced(old), new=fenced(new))
    banks = {
        "replace": EDIT.REPLACE,
        "after": EDIT.AFTER,
        "before": EDIT.BEFORE,
        "delete": EDIT.DELETE,
    }
    slots = {"old": _marked(source, old.strip()), "new": _marked(source, new.strip())}
    return phrase(source, source.choice(banks[change.kind]), ask=False, **slots)


def _marked(source: Source, text: str) -> str:
    marks = [mark for mark in ("`", "`", "`", '"', "'") if mark not in text]
    mark = source.choice(marks) if marks else ""
    return mark + text + mark if mark else f"<line>{text}</line>"


def _describe_setting(source: Source, change: Change, lines: list[str]) -> str:
    match = _SETTING.fullmatch(lines[change.start])
    new = _SETTING.fullmatch(change.new[0])
    if not match or not new:
        raise ValueError(f"no setting: {lines[change.start]!r} -> {change.new[0]!r}")
    return phrase(
        source, source.choice(EDIT.SET), ask=False, old=f"`{match[2]}`", new=f"`{new[3]}`"
    )


def _with_neighbours(change: Change, lines: list[str], n_context: int) -> tuple[int, int]:
    return max(0, change.start - n_context), min(len(lines), change.end + n_context)


def _search_replace(source: Source, change: Change, lines: list[str]) -> str:
    """Write the change as a block; what it searches for holds the one line that is unique."""
    start, end = _with_neighbours(change, lines, source.choice((1, 1, 2)))
    if change.kind in ("after", "before") and source.chance(0.5):
        start = change.start - (change.kind == "after")
        end = change.end + (change.kind == "before")
    elif change.kind == "replace" and source.chance(0.6):
        start, end = change.start, change.end
    old = lines[start:end]
    new = [*lines[start : change.start], *change.new, *lines[change.end : end]]
    return "\n".join(["<<<<<<< SEARCH", *old, "=======", *new, ">>>>>>> REPLACE"])


def _unified_diff(source: Source, change: Change, lines: list[str], path: str) -> str:
    start, end = _with_neighbours(change, lines, source.choice((1, 2, 3, 3)))
    n_old = end - start
    n_new = n_old + len(change.new) - (change.end - change.start)
    body = [f" {line}" for line in lines[start : change.start]]
    body += [f"-{line}" for line in lines[change.start : change.end]]
    body += [f"+{line}" for line in change.new]
    body += [f" {line}" for line in lines[change.end : end]]
    head = [f"--- a/{path}", f"+++ b/{path}"] if source.chance(0.8) else []
    return "\n".join([*head, f"@@ -{start + 1},{n_old} +{start + 1},{n_new} @@", *body])
