"""Reads `--format` and `/set format`: any JSON, or JSON of a schema."""

from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.errors import UsageError
from gptoss_local.validation import in_words


def read_format(text: str) -> Any:
    """Return `format` as the API takes it: `json`, or the schema in a file or in the text itself.

    Raises:
        UsageError: it is neither.
    """
    if text == "json":
        return "json"
    if text.lstrip().startswith("{"):
        return _schema(text, "the schema")
    try:
        return _schema(Path(text).read_text(encoding="utf-8-sig"), text)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no file {text}", hint="A format is json, or a file with a JSON schema."
        ) from error
    except OSError as error:
        raise UsageError(f"{text} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{text} is not text") from error


def _schema(text: str, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"{what} is not a JSON schema: {in_words(error)}") from error
