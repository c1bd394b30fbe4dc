"""Modelfiles: Ollama's recipes for models. Source: its parser/parser.go, docs/modelfile.mdx."""

import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.validation import in_words
from gptoss_local.cli._output import say
from gptoss_local.models.store import AS_JSON

_KNOWN = "FROM, SYSTEM, LICENSE, ADAPTER, PARAMETER, MESSAGE"
_NOT_USED = {
    **dict.fromkeys(("TEMPLATE", "RENDERER", "PARSER"), "gpt-oss's own format is built in"),
    "REQUIRES": "that is a version of Ollama",
    "DRAFT": "gptoss drafts without a second model",
}
"""`ollama show --modelfile` writes such lines for every gpt-oss."""


def parse_modelfile(text: str) -> dict[str, Any]:
    """Return the body of `POST /api/create`, without the name; an adapter is still a path."""
    body: dict[str, Any] = {}
    licenses: list[Any] = []
    said: set[str] = set()
    for n, command, value in _instructions(text):
        try:
            if command == "LICENSE":
                licenses.append(value)
            elif command in _NOT_USED:
                say(f"Modelfile, line {n}: {command} is not used: {_NOT_USED[command]}. "
                    "Leave the line out.")  # fmt: skip
            else:
                _add(body, command, value)
                key = value[0] if command == "PARAMETER" else command
                if key in said and key != "stop" and command in ("SYSTEM", "PARAMETER"):
                    say(f"Modelfile, line {n}: replaces an earlier {command}")
                said.add(key)
        except UsageError as error:
            raise UsageError(f"Modelfile, line {n}: {error.message}", hint=error.hint) from error
    if licenses:
        body["license"] = licenses if len(licenses) > 1 else licenses[0]
    if "from" not in body:
        raise UsageError("the Modelfile has no FROM line", hint="As in: FROM gpt-oss:20b")
    return body


def _add(body: dict[str, Any], command: str, value: Any) -> None:
    match command:
        case "FROM" if "from" in body:
            raise UsageError("a second FROM", hint="One model is made of one.")
        case "ADAPTER" if "adapters" in body:
            raise UsageError(
                "a second ADAPTER", hint="A model has one; merge several into one with peft."
            )
        case "FROM" | "SYSTEM":
            body[command.lower()] = value
        case "ADAPTER":
            body["adapters"] = {"adapter": value}
        case "PARAMETER":
            parse_parameter(body.setdefault("parameters", {}), *value)
        case "MESSAGE":
            role, content = value
            more = content if isinstance(content, dict) else {"content": content}
            body.setdefault("messages", []).append({"role": role} | more)
        case _:
            raise UsageError(f"{command} is unknown", hint=f"Known: {_KNOWN}.")


def parse_parameter(parameters: dict[str, Any], key: str, text: str) -> None:
    """Add a parameter, a number where possible; each `stop` adds a stop string."""
    from gptoss_local.server.dialects.options import ModelOptions

    n_quotes = _quotes(text)
    value: Any = text[n_quotes:-n_quotes] if n_quotes else text
    if key != "stop" or n_quotes == 1:  # a stop of 7 is a text
        with contextlib.suppress(ValueError, RecursionError):  # such as a backslash that is meant
            value = json.loads(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{key} must be a number, not {text}")
    given = {key: [value] if key == "stop" else value}
    try:
        checked = msgspec.convert(given, ModelOptions, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(in_words(error, given)) from error
    if key == "stop":
        parameters.setdefault("stop", []).append(value)
    else:  # "-1" is a number, too
        parameters[key] = getattr(checked, key, value) if isinstance(value, str) else value


def _instructions(text: str) -> Iterator[tuple[int, str, Any]]:
    """Yield line number, command and value: a text, or a pair with the word before it.

    A value in quotes continues until a line ends with them, as in Ollama; others may stand inside.
    """
    # Not `splitlines`, for which a form feed or U+2028 ends a line, too.
    lines = enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1)
    is_json = False
    for n, line in lines:
        command, value = _first(line)
        command, word = command.upper(), ""
        if not command or command.startswith("#"):
            is_json = is_json or line.strip() == AS_JSON
            continue
        if has_word := command in ("PARAMETER", "MESSAGE"):
            word, value = _first(value)
        if not value.strip():
            needed = "two words at least" if has_word else "a value"
            raise UsageError(f"Modelfile, line {n}: {command} needs {needed}")
        while (quotes := _quotes(value.strip())) is None:
            try:
                value = f"{value}\n{next(lines)[1]}"
            except StopIteration:
                opening = '"""' if value.startswith('"""') else '"'
                raise UsageError(f"Modelfile, line {n}: {opening} is never closed") from None
        found: Any = value.strip()
        if is_json:
            try:
                found = json.loads(found)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"Modelfile, line {n}: not JSON: {error}") from error
        elif quotes and command != "PARAMETER":
            found = found[quotes:-quotes]
        is_json = False
        yield n, command, (word, found) if word else found


def _first(text: str) -> tuple[str, str]:
    word, *rest = text.split(maxsplit=1) or [""]
    return word, rest[0] if rest else ""


def _quotes(value: str) -> int | None:
    """Return how many quotes stand at both ends of a value; None: they are not closed yet."""
    for quotes in ('"""', '"'):
        if value.startswith(quotes):
            is_closed = len(value) >= 2 * len(quotes) and value.endswith(quotes)
            return len(quotes) if is_closed else None
    return 0
