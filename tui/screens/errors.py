"""What failed is said beside the chat, which goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

from textual.widget import Widget

from gptoss_local.errors import GptOssError


def show_error(widget: Widget, error: GptOssError) -> None:
    """What happened and what to do."""
    widget.notify(f"{error.message}\n{error.hint}".strip(), severity="error", markup=False)


@contextmanager
def telling(widget: Widget) -> Iterator[None]:
    """Show an error instead of raising it: one that leaves a handler ends the app."""
    try:
        yield
    except GptOssError as error:
        show_error(widget, error)
