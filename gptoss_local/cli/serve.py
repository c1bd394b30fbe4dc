"""`gptoss serve`: run the HTTP server in the foreground."""

from typing import Annotated

import typer

from gptoss_local.settings import load_settings


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
) -> None:
    """Serve the Ollama-compatible API."""
    settings = load_settings(host=host, port=port)
    import logging

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    logging.getLogger("gptoss").setLevel(logging.INFO)

    from gptoss_local.server import app

    app.serve(settings)
