"""`gptoss worker`: serve a model through the frontend of another system. Needs no server."""

import os
from typing import Annotated, Literal

import typer

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import load_settings
from gptoss_local.cli._options import ModelName, named
from gptoss_local.cli._output import progress_bar

_INSTALL = (
    "pip install --no-deps ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1 && pip install uvloop "
    "(in the environment of gptoss; docs/dynamo.md)"
)


def worker(
    system: Annotated[Literal["dynamo"], typer.Argument(metavar="dynamo", help="The system.")],
    model: ModelName,
    name: Annotated[
        str, typer.Option(help="The model's name there; by default the one it has here.")
    ] = "",
    host: Annotated[
        str,
        typer.Option(
            help="This machine's IPv4 address, or network interface, at which frontends reach it; "
            "they need no key."
        ),
    ] = "127.0.0.1",
    namespace: Annotated[str, typer.Option(help="Dynamo's namespace.")] = "",
    component: Annotated[str, typer.Option(help="Dynamo's component.")] = "gptoss",
) -> None:
    """Dynamo's own variables (DYN_*) say where its parts find each other; those with an address win
    over --host.
    """
    settings = load_settings()
    import signal
    import sys

    # As in `gptoss serve`; Dynamo takes over when the model is loaded.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    from gptoss_local.models.store import find_model

    model = named(model, settings)
    entry = find_model(model, settings)
    if entry.upstream is not None:
        raise UsageError(f"{entry.name} is computed elsewhere, and cannot be served from here")
    try:
        from gptoss_local.cluster.dynamo.worker import WorkerPlace, run_worker
    except ImportError as error:
        if (error.name or "").split(".")[0] != "dynamo":
            raise
        raise UsageError(
            f"this needs NVIDIA Dynamo, which is not installed here ({error})", hint=_INSTALL
        ) from error
    from gptoss_local.cluster.dynamo.address import own_address
    from gptoss_local.server.log_lines import log_to_terminal

    log_to_terminal(settings.log_format)
    place = WorkerPlace(
        address=own_address(host),
        served_name=name or entry.name,
        namespace=namespace or os.environ.get("DYN_NAMESPACE", "") or "dynamo",
        component=component,
    )
    run_worker(entry, place, settings, progress_bar(tenths=True))
