"""Sizes, durations and options of requests as people write them."""

import contextlib
import math
import re

import msgspec

from gptoss_local.base.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i)?B?", re.IGNORECASE)
_MOST_BYTES = 2.0**60  # far below the limit of 64 bits
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(h|ms|us|µs|ns|m|s)")
_FOREVER_S = 1e9
OptionValue = float | bool
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (0, 1000),
    "min_p": (0, 1),
    "seed": (0, 2**31 - 1),
    "num_predict": (1, 2**31 - 1),
    "num_ctx": (1, 131_072),
    "think_budget": (0, 2**31 - 1),
    "repeat_penalty": (0.1, 10),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_WHOLE = ("top_k", "seed", "num_predict", "num_ctx", "think_budget")
_ON_OR_OFF = ("repeat_guard", "truncate")
OPTIONS = (*_RANGES, *_ON_OR_OFF)
_SWITCHES = {"on": True, "true": True, "off": False, "false": False}


def parse_size(text: str, source: str) -> int:
    """Read a size as Hugging Face's tools do: `4GB` is 4 * 10^9 bytes, `4GiB` 4 * 2^30."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        raise UsageError(f"{source} {text!r} is not a size.", hint="Write it as 4GB.")
    power = " KMGT".index(match[2].upper() or " ")
    n_bytes = float(match[1]) * (1024 if match[3] else 1000) ** power
    if n_bytes >= _MOST_BYTES:
        raise UsageError(f"{source} {text!r} is more than any memory or disk has.")
    return int(n_bytes)


def per_token(joules: float) -> str:
    return f"{joules:,.0f} J/token" if joules >= 10 else f"{joules:.2g} J/token"


def parse_memory(text: str, source: str) -> int:
    """Read the size of a memory; refuse one below 1 MB, which lacks a unit, but allow 0."""
    size, is_none = parse_size(text, source), not re.search("[1-9]", text)
    if size < 1_000_000 and not is_none:
        number = re.sub(r"[^\d.]", "", text)
        unit = "MiB" if float(number) >= 256 else "GiB"  # as nvidia-smi has it
        raise UsageError(f"{source} {text!r} is {size} bytes.", hint=f"Write {number}{unit}.")
    return size


def as_written(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parse_keep_alive(value: float | str | bool) -> float:
    """Return the seconds that a model stays loaded; negative means forever.

    A string is a Go duration (`5m`, `1h30m`) or a number. Source: Ollama's api/types.go (Duration)
    and envconfig/config.go (KeepAlive).
    """
    if isinstance(value, bool):
        raise UsageError("keep_alive must be a number of seconds or a duration such as 5m")
    seconds = _duration_s(value.strip()) if isinstance(value, str) else value
    return seconds if seconds < _FOREVER_S else -1.0


def _duration_s(text: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(seconds := float(text)):
            return seconds
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    parts = _DURATION.findall(digits)
    if not parts or "".join(number + unit for number, unit in parts) != digits:
        raise UsageError(f'invalid duration "{text}"', hint="Use e.g. 5m, 1h30m, 300 or -1.")
    return sign * sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def parse_option(name: str, text: str, source: str = "") -> OptionValue:
    if name in _ON_OR_OFF:
        if text.lower() not in _SWITCHES:
            raise UsageError(f"{name} is on or off")
        return _SWITCHES[text.lower()]
    if name not in _RANGES:
        raise UsageError(f"there is no option '{name}'", hint=f"There are {', '.join(OPTIONS)}.")
    low, high = _RANGES[name]
    return parse_number(text, source or name, low, high, is_whole=name in _WHOLE)


def parse_number(
    text: str, source: str, low: float, high: float = math.inf, *, is_whole: bool = False
) -> float:
    try:
        value = int(text) if is_whole else float(text)
    except ValueError:
        value = math.nan
    if not (low <= value <= high and math.isfinite(value)):
        upwards = f"from {low} to {high}" if high < math.inf else f"from {low} on"
        raise UsageError(f"{source} is a {'whole ' * is_whole}number {upwards}, not {text!r}")
    return value


def counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' if n != 1 else ''}"
