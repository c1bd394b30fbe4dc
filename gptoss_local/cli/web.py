"""`gptoss web`: the chats in a browser."""

from typing import Annotated

import typer

from gptoss_local.cli._options import running_server
from gptoss_local.settings import Settings, load_settings


def web(
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the link.")] = False,
) -> None:
    """Chat in the browser; the chats are those of `gptoss chat`.

    Starts a server if none answers; it continues until `gptoss stop`. The link works once.
    """
    show_page(load_settings(), opens=not no_open)


def show_page(settings: Settings, *, opens: bool) -> None:
    """Make sure of a server, print a link that lets one browser in, and open it."""
    link = running_server(settings).page_link()
    print(link, flush=True)
    if opens:
        import webbrowser

        webbrowser.open(link)
