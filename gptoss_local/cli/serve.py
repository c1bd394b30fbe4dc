"""`gptoss serve`: run the HTTP server in the foreground."""

import sys
from typing import Annotated

import typer

from gptoss_local.settings import load_settings


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
) -> None:
    """Serve the Ollama-compatible API."""
    settings = load_settings(host=host, port=port)
    import signal

    # Before the slow imports: the kernel spares the first process of a container a signal that it
    # does not handle, so a `docker stop` during the start would do nothing.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    from gptoss_local.server import app
    from gptoss_local.server.log_lines import log_to_terminal

    log_to_terminal(settings.log_format)
    app.serve(settings)
