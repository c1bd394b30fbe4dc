"""Search the files of a folder, in a process of its own: a regular expression may take for ever."""

import re
import sys
from pathlib import Path

import msgspec

from gptoss_local.talk.documents import MAX_TEXT_BYTES
from gptoss_local.talk.ignored import Walk

_N_HITS = 200
_N_SHOWN = 300  # characters of a line


class Search(msgspec.Struct):
    """A search below `place`, which is in `folder`; both are resolved."""

    pattern: str
    folder: str
    place: str


def hits(search: Search) -> list[str]:
    """Return `path:line: text` of matching lines. Raises re.error."""
    pattern, folder, place = re.compile(search.pattern), Path(search.folder), Path(search.place)
    found: list[str] = []
    walk = Walk(place)
    files = ((place, False),) if place.is_file() else walk
    for path, is_ignored in files:
        if is_ignored or path.is_symlink() or not path.is_file():  # a link may lead anywhere
            continue
        if path.stat().st_size > MAX_TEXT_BYTES or b"\0" in (data := path.read_bytes()):
            continue
        name = path.relative_to(folder).as_posix()
        for n, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{name}:{n}: {line[:_N_SHOWN]}")
            if len(found) > _N_HITS:
                return [*found[:-1], f"(only the first {_N_HITS}: search for less, or in a folder)"]
    return found if walk.is_whole else [*found, "(the folder is too large: search in a part of it)"]


if __name__ == "__main__":
    try:
        lines = hits(msgspec.json.decode(sys.stdin.buffer.read(), type=Search))
    except re.error as error:
        sys.exit(f"not a regular expression: {error}")
    sys.stdout.buffer.write("\n".join(lines or ["nothing found"]).encode("utf-8", "replace"))
