from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from textual.app import App
from textual.widget import Widget

from gptoss_local.base.errors import GptOssError

READ_S = 8.0  # for two sentences that were not expected


def show_error(shown_by: Widget | App[Any], error: GptOssError) -> None:
    text = f"{error.message}\n{error.hint}".strip()
    shown_by.notify(text, severity="error", timeout=READ_S, markup=False)


@contextmanager
def errors_shown(shown_by: Widget | App[Any]) -> Iterator[None]:
    """Show an error instead of raising it, as an error that leaves a handler ends the app."""
    try:
        yield
    except GptOssError as error:
        show_error(shown_by, error)
