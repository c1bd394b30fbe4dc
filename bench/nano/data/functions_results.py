"""What functions answer, and how the model reports it.

A weather result that is a JSON object with a temperature and a condition becomes a sentence; any
other result is repeated as it is, in a code fence if it has several lines.
"""

import json
from collections.abc import Callable

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("functions")
WORDS = banks("words")

_TEMPERATURES = ("temperature", "temperature", "temperature", "temp")
_CONDITIONS = ("condition", "condition", "weather", "description", "conditions")


def draw_result(source: Source, role: str) -> str:
    """Draw what a function of a role may answer."""
    if role == "weather" and source.chance(0.75):
        return _weather(source)
    kind = source.rng.random()
    if kind < 0.03:
        return ""
    if kind < 0.13:
        result = source.choice(BANK.DONE)
    elif kind < 0.38:
        result = source.line()
    elif kind < 0.7:
        result = _json(source, role)
    elif kind < 0.76:
        result = source.choice(("Error: ", "error: ", "ERROR ", "Failed: ")) + source.line()
    else:
        result = _lines(source)
    end = "\n" if source.chance(0.1) else ""
    return result.replace("```", "'''") + end


def report(name: str, role: str, city: object, result: str) -> str:
    """Say what a function answered; the one right text."""
    text = result.rstrip("\n")
    sentence = _weather_sentence(text, city) if role == "weather" else ""
    if sentence:
        return sentence
    if not text:
        return f"`{name}` answered nothing."
    if "\n" in text:
        return f"`{name}` answered:\n\n```\n{text}\n```"
    return f"`{name}` answered: {text}"


def _weather_sentence(text: str, city: object) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return ""
    warmth = next((found[key] for key in _TEMPERATURES if key in found), None)
    sky = next((found[key] for key in _CONDITIONS if key in found), None)
    if not isinstance(warmth, int | float) or not isinstance(sky, str):
        return ""
    return f"It is {warmth} degrees and {sky} in {city}."


def _weather(source: Source) -> str:
    """An object as weather services give it."""
    warmth = source.rng.randrange(-20, 45)
    sky = source.choice(BANK.SKIES) if source.chance(0.75) else source.fresh(source.invented)
    found: dict[str, object] = {
        source.choice(_TEMPERATURES): warmth + source.rng.randrange(10) / 10
        if source.chance(0.15)
        else warmth,
        source.choice(_CONDITIONS): sky,
    }
    extras: tuple[tuple[str, Callable[[], object]], ...] = (
        ("unit", lambda: source.choice(("celsius", "fahrenheit", "C", "F"))),
        ("humidity", lambda: source.rng.randrange(100)),
        ("wind", lambda: source.rng.randrange(80)),
    )
    for key, draw in extras:
        if source.chance(0.15):
            found[key] = draw()
    items = list(found.items())
    if source.chance(0.3):
        source.rng.shuffle(items)
    return _dump(source, dict(items))


def _dump(source: Source, value: object) -> str:
    style = source.rng.random()
    if style < 0.6:
        return json.dumps(value, ensure_ascii=False)
    if style < 0.85:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, indent=2)


def _json(source: Source, role: str) -> str:
    keys = BANK.RESULT_KEYS.get(role, ())
    if not keys or source.chance(0.4):
        keys = tuple(source.choice(WORDS.CODE_WORDS) for _ in range(4))
    found = {key: _scalar(source) for key in keys[: source.rng.randint(1, 4)]}
    return _dump(source, [found] if source.chance(0.1) else found)


def _scalar(source: Source) -> object:
    kind = source.rng.random()
    if kind < 0.3:
        return source.rng.randrange(10 ** source.rng.randint(1, 7))
    if kind < 0.4:
        return source.rng.randrange(10**5) / 100
    if kind < 0.5:
        return source.choice((True, False, None))
    return source.secret() if kind < 0.7 else source.line()


def _lines(source: Source) -> str:
    n = source.rng.randint(2, 7)
    kind = source.rng.randrange(4)
    if kind == 0:
        return "\n".join(source.line() for _ in range(n))
    if kind == 1:
        return "\n".join(f"{source.choice(WORDS.CODE_WORDS)}: {source.line()}" for _ in range(n))
    if kind == 2:
        return "\n".join(f"{i}. {source.line()}" for i in range(1, n + 1))
    return "\n".join(source.sentence() for _ in range(n))
