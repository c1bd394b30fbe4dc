"""Modelfiles: Ollama's recipes for models. Source: its parser/parser.go, docs/modelfile.mdx."""

import json
import math
from collections.abc import Iterator
from typing import Any

from gptoss_local.base.errors import UsageError

_TEXTS = {"FROM": "from", "SYSTEM": "system", "LICENSE": "license", "TEMPLATE": "template"}
_MAX_CTX = 1 << 20  # gpt-oss has 131,072
_QUOTES = '"""'


def parse_modelfile(text: str) -> dict[str, Any]:
    """Return the body of `POST /api/create`, without the name; an adapter is still a path."""
    body: dict[str, Any] = {}
    for n, command, value in _instructions(text):
        if command == "FROM" and "from" in body:
            raise UsageError(
                f"Modelfile, line {n}: a second FROM", hint="One model is made of one."
            )
        if command in _TEXTS:
            body[_TEXTS[command]] = _unquoted(value)
        elif command == "ADAPTER":
            if "adapters" in body:
                raise UsageError(
                    f"Modelfile, line {n}: a second ADAPTER",
                    hint="A model has one; merge several into one with peft.",
                )
            body["adapters"] = {"adapter": _unquoted(value)}
        elif command in ("PARAMETER", "MESSAGE"):
            first, _, rest = value.partition(" ")
            if not rest.strip():
                raise UsageError(f"Modelfile, line {n}: {command} needs two words at least")
            if command == "PARAMETER":
                parse_parameter(body.setdefault("parameters", {}), first, rest.strip())
            else:
                message = {"role": first, "content": _unquoted(rest.strip())}
                body.setdefault("messages", []).append(message)
        else:
            raise UsageError(
                f"Modelfile, line {n}: {command} is unknown",
                hint=f"Known: {', '.join(_TEXTS)}, ADAPTER, PARAMETER, MESSAGE.",
            )
    if "from" not in body:
        raise UsageError("the Modelfile has no FROM line", hint="As in: FROM gpt-oss:20b")
    return body


def parse_parameter(parameters: dict[str, Any], key: str, text: str) -> None:
    """Add a parameter, a number where possible; each `stop` adds a stop string."""
    if key == "stop":
        parameters.setdefault("stop", []).append(_unquoted(text))
        return
    try:
        value = json.loads(text)
    except ValueError:
        value = _unquoted(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"the parameter {key} is {text}, which is not a number")
    if key == "num_ctx" and not (type(value) is int and 0 < value <= _MAX_CTX):
        raise UsageError(
            f"the parameter num_ctx is {text}", hint=f"It is a number from 1 to {_MAX_CTX:,}."
        )
    parameters[key] = value


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, command and value; a value in triple quotes may have several lines."""
    lines = enumerate(text.splitlines(), start=1)
    for n, line in lines:
        command, _, value = line.strip().partition(" ")
        if not command or command.startswith("#"):
            continue
        _, opening, rest = value.partition(_QUOTES)
        while opening and _QUOTES not in rest:
            try:
                more = next(lines)[1]
            except StopIteration:
                raise UsageError(f"Modelfile, line {n}: {_QUOTES} is never closed") from None
            value, rest = f"{value}\n{more}", f"{rest}\n{more}"
        yield n, command.upper(), value.strip()


def _unquoted(value: str) -> str:
    if value.startswith(_QUOTES):
        return value[3:].partition(_QUOTES)[0]
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return str(json.loads(value))
        except ValueError:  # a backslash that is meant
            return value[1:-1]
    return value
