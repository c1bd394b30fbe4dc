"""Changes of a file: drawn so that they are unambiguous, and told in words or as patches.

A line that a change names occurs once in its file, and not as a part of other lines either. New
lines are indented like the line that they replace or stand next to.
"""

import re
from dataclasses import dataclass

from tests.nano.data.echo import fenced
from tests.nano.data.source import Source
from tests.nano.data.wording import phrase

_SETTING = re.compile(r'(\s*"?([A-Za-z_][\w.-]*)"?(?: = |=|: ))("[^"`]*"|[\w.+-]+)([,;]?)')

_REPLACE = (
    *(pattern for verb in ("Replace", "Swap", "Exchange") for pattern in (
        f"{verb} {{old}} with {{new}}.", f"{verb} the line {{old}} with {{new}}",
    )),
    "Change {old} to {new}.", "Change the line {old} to {new}", "Turn {old} into {new}.",
    "Write {new} instead of {old}.", "{old} must become {new}.", "The line {old} should be {new}.",
    "Instead of {old} there should be {new}.", "Make it {new} where it says {old}.",
    "put {new} in place of {old}", "Update the line {old} so that it reads {new}.",
    "{old} -> {new}", "Edit the line {old}: it has to be {new}.", "Use {new}, not {old}.",
    "Substitute {new} for {old}.", "The new text of {old} is {new}.", "Correct {old} to {new}.",
    "I want {new} where {old} is now.", "Overwrite {old} with {new}.",
)  # fmt: skip
_AFTER = (
    *(pattern for verb in ("Insert", "Add", "Put", "Write") for pattern in (
        f"{verb} {{new}} after {{old}}.", f"{verb} the line {{new}} below {{old}}.",
    )),
    "After {old}, add {new}.", "Below the line {old} insert {new}.", "Append {new} after {old}",
    "Directly after {old} there should be {new}.", "{new} has to follow {old}.",
    "Right behind {old} comes a new line: {new}", "Add a line after {old} that says {new}.",
    "Underneath {old}, write {new}.", "The line after {old} should be a new one, {new}.",
)  # fmt: skip
_BEFORE = (
    *(pattern for verb in ("Insert", "Add", "Put", "Write") for pattern in (
        f"{verb} {{new}} before {{old}}.", f"{verb} the line {{new}} above {{old}}.",
    )),
    "Before {old}, add {new}.", "Above the line {old} insert {new}.",
    "Directly before {old} there should be {new}.", "{new} has to come before {old}.",
    "Right above {old} comes a new line: {new}", "Add a line before {old} that says {new}.",
    "On top of {old}, write {new}.", "The line before {old} should be a new one, {new}.",
)  # fmt: skip
_DELETE = (
    "Delete the line {old}.", "Remove {old}.", "Delete {old}", "Drop the line {old}.",
    "Take out {old}.", "Get rid of {old}.", "The line {old} must go.", "Cut the line {old}.",
    "Erase {old}.", "Leave out {old}.", "{old} is not needed, remove it.", "Throw {old} out.",
    "I do not want {old} any more.", "Strip the line {old}", "remove line {old}",
    "Kick out {old}, keep the rest.", "Without the line {old}, please.", "Clear away {old}.",
)  # fmt: skip
_SET = (
    "Set {old} to {new}.", "Change the value of {old} to {new}.", "{old} should be {new}.",
    "Give {old} the value {new}.", "Make {old} {new}.", "The value of {old} must be {new}.",
    "Update {old} to {new}", "Let {old} be {new}.", "New value of {old}: {new}", "{old} := {new}",
    "I want {old} to be {new}.", "Assign {new} to {old}.", "Use {new} as the value of {old}.",
    "Put {new} as {old}.", "Switch {old} to {new}.", "Replace the value of {old} with {new}.",
)  # fmt: skip
_OLD_NEW = (
    "Replace\n{old}\nwith\n{new}", "Change this:\n{old}\nto this:\n{new}",
    "old:\n{old}\nnew:\n{new}",
    "Find\n\n{old}\n\nand write\n\n{new}\n\ninstead.", "Before:\n{old}\n\nAfter:\n{new}",
)  # fmt: skip
_PATCH = (
    "Apply this change:\n\n{patch}", "Apply this:\n{patch}", "Change the file so:\n{patch}",
    "Here is the edit to make.\n\n{patch}", "Make this edit:\n{patch}", "edit:\n{patch}",
    "Please carry out this change.\n\n{patch}", "Patch the file:\n\n{patch}", "{patch}",
    "Apply the following and show the file.\n\n{patch}", "The change:\n\n{patch}",
    "What is the file after this?\n\n{patch}", "Update the file like this:\n{patch}",
)  # fmt: skip


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
        return phrase(source, _PATCH, ask=False, patch=_search_replace(source, change, lines))
    if form < 0.4:
        patch = _unified_diff(source, change, lines, path)
        patch = fenced(patch, "diff") if source.chance(0.6) else patch
        return phrase(source, _PATCH, ask=False, patch=patch)
    old = lines[change.start - 1 if change.kind == "after" else change.start]
    new = change.new[0] if change.new else ""
    if change.kind == "replace" and source.chance(0.25):
        return phrase(source, _OLD_NEW, old=fenced(old), new=fenced(new))
    banks = {"replace": _REPLACE, "after": _AFTER, "before": _BEFORE, "delete": _DELETE}
    slots = {"old": _marked(source, old.strip()), "new": _marked(source, new.strip())}
    return phrase(source, banks[change.kind], ask=False, **slots)


def _marked(source: Source, text: str) -> str:
    marks = [mark for mark in ("`", "`", "`", '"', "'") if mark not in text]
    mark = source.choice(marks) if marks else ""
    return mark + text + mark if mark else f"<line>{text}</line>"


def _describe_setting(source: Source, change: Change, lines: list[str]) -> str:
    match = _SETTING.fullmatch(lines[change.start])
    new = _SETTING.fullmatch(change.new[0])
    if not match or not new:
        raise ValueError(f"no setting: {lines[change.start]!r} -> {change.new[0]!r}")
    return phrase(source, _SET, ask=False, old=f"`{match[2]}`", new=f"`{new[3]}`")


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
