"""Draws whole files: code, settings, tables, documents; with many lines that resemble each other.

To copy a file is hard where it repeats itself, so most kinds are made of blocks of one pattern.
"""

import json
from collections.abc import Callable, Iterator, Sequence

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("edit")
WORDS = banks("words")

Lines = Iterator[str]
MAX_CHARACTERS = 10_000  # about 3,000 tokens; an answer repeats all of them


def draw_file(source: Source, n_lines: int) -> str:
    """Draw a file of any kind, without a final newline and without a code fence in it."""
    if source.chance(0.25):
        return draw_code(source, n_lines)
    return _take(source, source.choice(_ALL_KINDS), n_lines)


def draw_program(source: Source, n_lines: int) -> str:
    """Draw a file of code in which the same few names occur again and again."""
    return _take(source, source.choice(_PROGRAMS), n_lines)


def draw_code(source: Source, n_lines: int) -> str:
    """Draw a file of code whose lines have nothing in common."""
    return _finish(source.code(n_lines).split("\n"))


def _take(source: Source, kind: Callable[[Source], Lines], n_lines: int) -> str:
    lines: list[str] = []
    while len(lines) < n_lines:
        for line in kind(source):
            lines.append(line)
            if len(lines) == n_lines:
                break
    return _finish(lines)


def _finish(lines: list[str]) -> str:
    """Join lines up to the limit, without what would end a fence around them."""
    length = sum(map(len, lines)) + len(lines)
    while length > MAX_CHARACTERS or not lines[-1].strip():
        length -= len(lines.pop()) + 1
    return "\n".join(lines).replace("```", "~~~")


def _names(source: Source, n: int) -> list[str]:
    """Draw a few different names, some very common ones; now and then one is made of another."""
    names = [
        source.choice(WORDS.CODE_WORDS) if source.chance(0.3) else source.identifier()
        for _ in range(n)
    ]
    if source.chance(0.25):
        name = source.choice(names)
        other = source.choice(WORDS.CODE_WORDS)
        longer = (f"{name}_{other}", f"{other}_{name}", f"{name}s", f"{name}{other.capitalize()}")
        names[source.rng.randrange(n)] = source.choice(longer)
    return names


def _remark(source: Source, names: Sequence[str]) -> str:
    """Words of a comment or a message, with a name of the program among them."""
    name, noun = source.choice(names), source.noun()
    adjective = source.choice(WORDS.ADJECTIVES)
    return source.choice((
        f"the {adjective} {name}", f"{name} of the {noun}", f"{name}: {noun}", f"no {name} here",
        f"{name} is {adjective}", f"see {name}", f"{adjective} {noun} of {name}, not {noun}",
    ))  # fmt: skip


def _value(source: Source) -> str:
    kind = source.rng.randrange(6)
    if kind == 0:
        return str(source.rng.randrange(10000))
    if kind == 1:
        return source.choice(("true", "false"))
    if kind == 2:
        return source.choice(WORDS.CODE_WORDS)
    text = source.tokens(source.rng.randint(1, 4)) if kind <= 4 else source.noun()
    return '"' + text.replace('"', "").replace("\\", "") + '"'


def _ini(source: Source) -> Lines:
    for _ in range(source.rng.randint(1, 5)):
        yield f"[{source.identifier()}]"
        for name in _names(source, source.rng.randint(2, 9)):
            yield f"{name} = {_value(source)}"
        yield ""


def _env(source: Source) -> Lines:
    for name in _names(source, source.rng.randint(4, 20)):
        yield f"{name.upper()}={_value(source)}"


def _yaml(source: Source) -> Lines:
    keys = _names(source, source.rng.randint(2, 5))
    for _ in range(source.rng.randint(2, 8)):
        yield f"{source.identifier()}:"
        for key in keys:
            yield f"  {key}: {_value(source)}"
        if source.chance(0.3):
            yield "  steps:"
            for _ in range(source.rng.randint(1, 3)):
                yield f"    - run: {source.command()}"


def _csv(source: Source) -> Lines:
    kinds = [source.rng.randrange(4) for _ in range(source.rng.randint(2, 6))]
    draws: Sequence[Callable[[], str]] = (
        source.person, source.city, lambda: str(source.rng.randrange(1000)), source.token_word,
    )  # fmt: skip
    yield ",".join(_names(source, len(kinds)))
    for _ in range(60):
        yield ",".join(draws[kind]() for kind in kinds)


def _json(source: Source) -> Lines:
    keys = _names(source, source.rng.randint(2, 4))
    records = [
        {key: source.choice((source.tokens(2), source.rng.randrange(100), True)) for key in keys}
        for _ in range(source.rng.randint(2, 12))
    ]
    data = records if source.chance(0.6) else {source.identifier(): record for record in records}
    yield from json.dumps(data, indent=source.choice((2, 4)), ensure_ascii=False).split("\n")


def _markdown(source: Source) -> Lines:
    yield f"# {source.tokens(2)}"
    for _ in range(source.rng.randint(1, 5)):
        yield ""
        yield f"## {source.choice(WORDS.ADJECTIVES).capitalize()} {source.noun()}"
        yield ""
        for _ in range(source.rng.randint(1, 7)):
            line = source.sentence() if source.chance(0.7) else source.line()
            yield line if source.chance(0.3) else f"- {line}"


def _html(source: Source) -> Lines:
    yield "<table>"
    for _ in range(source.rng.randint(2, 10)):
        yield "  <tr>"
        for _ in range(source.rng.randint(2, 3)):
            yield f"    <td>{source.noun() if source.chance(0.5) else source.tokens(2)}</td>"
        yield "  </tr>"
    yield "</table>"


def _css(source: Source) -> Lines:
    for _ in range(source.rng.randint(2, 8)):
        yield f".{source.invented()} {{"
        for name in source.some(("color", "margin", "padding", "width", "height", "gap"), 1, 4):
            yield f"  {name}: {source.rng.randrange(20)}px;"
        yield "}"
        yield ""


def _sql(source: Source) -> Lines:
    table, columns = source.identifier(), ", ".join(_names(source, 3))
    for _ in range(source.rng.randint(4, 30)):
        name = source.person().replace("'", "")
        row = f"{source.rng.randrange(1000)}, '{name}', {source.rng.randrange(100)}"
        yield f"INSERT INTO {table} ({columns}) VALUES ({row});"


def _list(source: Source) -> Lines:
    for _ in range(source.rng.randint(10, 60)):
        yield source.line()


def _class(source: Source) -> Lines:
    yield f"class {source.identifier()}:"
    fields = _names(source, source.rng.randint(2, 5))
    yield f"    def __init__(self, {', '.join(fields)}):"
    for name in fields:
        yield f"        self.{name} = {name}"
    for _ in range(source.rng.randint(2, 8)):
        name, verb = source.choice(fields), source.choice(("get", "load", "count", "find", "make"))
        yield ""
        yield f"    def {verb}_{source.invented()}(self, value):"
        if source.chance(0.3):
            yield f'        """{_remark(source, fields)}."""'
        yield f"        result = self.{name} + {source.rng.randrange(100)}"
        if source.chance(0.5):
            yield f"        if value > {source.rng.randrange(10)}:"
            yield f"            result += self.{source.choice(fields)}"
        yield "        return result"


def _python(source: Source) -> Lines:
    names = _names(source, source.rng.randint(3, 6))
    yield f"import {source.choice(names)}"
    for _ in range(source.rng.randint(2, 6)):
        first, second, third = (source.choice(names) for _ in range(3))
        yield ""
        yield ""
        yield f"def {source.identifier()}({first}, {second}=None):"
        yield f"    {third} = {first}({source.rng.randrange(100)})"
        yield f"    for {source.choice('ijkxy')} in range({source.rng.randrange(100)}):"
        yield f"        {third}.append({second})"
        if source.chance(0.3):
            yield f"    # {_remark(source, names)}"
        if source.chance(0.4):
            said = source.tokens(3) if source.chance(0.5) else _remark(source, names)
            yield f'    print("{said.replace(chr(34), "")}", {first})'
        yield f"    return {source.choice((first, third))}"


def _script(source: Source) -> Lines:
    names = _names(source, source.rng.randint(3, 6))
    for _ in range(source.rng.randint(2, 6)):
        first, second, third = (source.choice(names) for _ in range(3))
        if source.chance(0.3):
            yield f"// {_remark(source, names)}"
        yield f"function {source.identifier()}({first}, {second}) {{"
        yield f"  const {third} = {first}.map((x) => x + {source.rng.randrange(100)});"
        if source.chance(0.3):
            yield f"  log(`{_remark(source, names)}`, {second}.{first});"
        if source.chance(0.5):
            yield f"  if ({second} > {source.rng.randrange(10)}) {{"
            yield f"    return {third};"
            yield "  }"
        yield f"  return {source.choice((first, second))};"
        yield "}"
        yield ""


def _tests(source: Source) -> Lines:
    target = source.identifier()
    yield f"from {source.identifier()} import {target}"
    for _ in range(source.rng.randint(2, 8)):
        yield ""
        yield f"def test_{source.identifier()}():"
        yield f"    result = {target}({source.rng.randrange(100)})"
        yield f"    assert result == {source.rng.randrange(100)}"


def _loose_code(source: Source) -> Lines:
    """Lines that have nothing to do with each other but their names."""
    names = _names(source, source.rng.randint(3, 8))
    for _ in range(source.rng.randint(5, 30)):
        a, b, c = (source.choice(names) for _ in range(3))
        text = source.tokens(2).replace('"', "")
        line = source.choice(WORDS.CODE_LINES)
        yield line.format(a=a, b=b, c=c, n=source.rng.randrange(1000), text=text)


def _joined(source: Source) -> Lines:
    """Names behind all the signs that a token may join with the beginning of a name."""
    names = _names(source, source.rng.randint(3, 6))
    for _ in range(source.rng.randint(5, 40)):
        a, b, c = (source.choice(names) for _ in range(3))
        yield source.choice(BANK.JOINED).format(a=a, b=b, c=c, n=source.rng.randrange(100))


_PROGRAMS = (_class, _python, _script, _tests, _loose_code, _joined)
_ALL_KINDS = (
    *_PROGRAMS, _ini, _env, _yaml, _csv, _json, _markdown, _html, _css, _sql, _list,
)  # fmt: skip
