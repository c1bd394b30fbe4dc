"""What users of a coding agent talk about: commands, files, folders, contents, changes."""

import json
import re

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("asks")
WORDS = banks("words")


def draw_command(source: Source) -> str:
    """A command; in a few cases of several lines, often with text of any kind."""
    kind = source.rng.random()
    if kind < 0.5:
        return source.command()
    if kind < 0.9:
        return source.fresh(lambda: _text_command(source))
    if kind < 0.95:
        return source.line()
    return "\n".join(source.command() for _ in range(source.rng.randint(2, 4)))


def _text_command(source: Source) -> str:
    return source.choice(BANK.TEXT_COMMANDS).format(
        text=source.tokens(source.rng.randint(1, 10)),
        word=source.invented() if source.chance(0.5) else source.token_word(),
        n=source.rng.randrange(1, 10000),
    )


def draw_file(source: Source) -> str:
    """A path of a file, sometimes with letters of any script or a space."""
    kind = source.rng.random()
    if kind < 0.75:
        return source.path()
    return source.fresh(lambda: _odd_path(source, spaces=kind > 0.96))


def _odd_path(source: Source, *, spaces: bool) -> str:
    parts = [_odd_name(source) for _ in range(source.rng.choice((1, 1, 2, 3)))]
    if spaces:
        parts[-1] += f" {source.token_word()}"
    root = source.choice(("", "", "./", "/", "~/"))
    return f"{root}{'/'.join(parts)}.{source.choice(WORDS.EXTENSIONS)}"


def _odd_name(source: Source) -> str:
    """A word made of any tokens, without the signs that would end it in a sentence."""
    name = re.sub(r"[\W]+", "", source.tokens(source.rng.randint(1, 3)))
    return name or source.invented()


def draw_folder(source: Source) -> str:
    """A path of a folder."""
    return source.fresh(lambda: _folder(source))


def _folder(source: Source) -> str:
    kind = source.rng.random()
    if kind < 0.05:
        return source.choice((".", "..", "~", "/tmp", "./"))
    parts = [
        _odd_name(source) if source.chance(0.25) else source.choice(WORDS.FOLDERS)
        for _ in range(source.rng.choice((1, 1, 2, 2, 3)))
    ]
    dot = "" if parts[0].startswith(".") else "."
    root = source.choice(("", "", "", "./", "/", "/home/", "~/", dot))
    return root + "/".join(parts) + ("/" if source.chance(0.15) else "")


def draw_text(source: Source, most: int) -> str:
    """A text of 1 to `most` lines: code, prose, data or any tokens."""
    n = 1 if source.chance(0.4) else source.rng.randint(2, most)
    if n == 1:
        return source.line()
    kind = source.rng.randrange(6)
    if kind <= 1:
        return source.fresh(lambda: source.code(n))
    if kind == 2:
        return "\n".join(source.line() for _ in range(n))
    if kind == 3:
        return draw_json(source, indent=source.choice((2, 4)))
    if kind == 4:
        bullet = source.choice(("- ", "* ", "", "1. ", "# "))
        return "\n".join(bullet + source.sentence() for _ in range(n))
    return "\n".join(
        f"{source.identifier()}{source.choice('=:,')}{_value(source)}" for _ in range(n)
    )


def _value(source: Source) -> str:
    return str(source.rng.randrange(10000)) if source.chance(0.4) else source.line()


def draw_json(source: Source, indent: int | None = None) -> str:
    """A small JSON object."""
    data: dict[str, object] = {}
    for _ in range(source.rng.randint(1, 6)):
        inner: object = source.rng.randrange(1000) if source.chance(0.4) else source.line()
        if source.chance(0.2):
            inner = [source.invented() for _ in range(source.rng.randint(0, 3))]
        data[source.identifier()] = inner
    return json.dumps(data, ensure_ascii=source.chance(0.3), indent=indent)


def draw_change(source: Source) -> tuple[str, str]:
    """An old text and a new one, which differ in a word or in everything."""
    while True:
        old, new = _change(source)
        if old != new:
            return old, new


def _change(source: Source) -> tuple[str, str]:
    if source.chance(0.2):
        return _word(source), _word(source)
    if source.chance(0.3):
        n = source.rng.randint(2, 4)
        old = source.fresh(lambda: source.code(n))
        return old, _altered(source, old) if source.chance(0.5) else source.code(n)
    old = source.line()
    return old, _altered(source, old) if source.chance(0.5) else source.line()


def _word(source: Source) -> str:
    """A word or a number, which may stand in a sentence without marks around it."""
    draws = (source.identifier, source.token_word, source.invented, source.noun)
    draw = source.choice(draws)
    return str(source.rng.randrange(10000)) if source.chance(0.15) else source.fresh(draw)


def _altered(source: Source, text: str) -> str:
    """The text with another word, number or end."""
    found = list(re.finditer(r"\w+", text))
    if not found:
        return f"{text} {source.invented()}"
    spot = source.choice(found)
    other = str(source.rng.randrange(1000)) if spot.group().isdigit() else source.identifier()
    return text[: spot.start()] + other + text[spot.end() :]


def draw_pattern(source: Source) -> str:
    """What to search for."""
    kind = source.rng.random()
    if kind < 0.4:
        return source.identifier()
    if kind < 0.6:
        return source.fresh(lambda: source.tokens(source.rng.randint(1, 4)))
    return source.line() if kind < 0.8 else source.fresh(source.token_word)
