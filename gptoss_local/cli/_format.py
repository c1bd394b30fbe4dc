"""Reads `--format` and `/set format`: any JSON, or JSON of a schema."""

from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.errors import UsageError
from gptoss_local.validation import in_words
from gptoss_local.whole_file import read_text


def read_format(text: str) -> Any:
    """Return `format` as the API takes it: `json`, or the schema in a file or in the text itself.

    Raises:
        UsageError: it is neither.
    """
    if text == "json":
        return "json"
    if text.lstrip().startswith("{"):
        return _schema(text, "the schema")
    hint = "A format is json, or a file with a JSON schema."
    return _schema(read_text(Path(text), hint=hint), text)


def _schema(text: str, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"{what} is not a JSON schema: {in_words(error)}") from error
