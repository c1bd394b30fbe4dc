"""`gptoss status`: whether a server runs, and what it holds."""

import msgspec
import typer

from gptoss_local.cli._loading import load_text
from gptoss_local.cli._options import Json
from gptoss_local.cli._output import human_age, print_facts, print_json
from gptoss_local.errors import ServerUnavailableError
from gptoss_local.settings import load_settings


def status(json: Json = False) -> None:
    """Show whether a server runs and what it holds; exit code 7 if none does."""
    from gptoss_local.api.client import Client

    settings = load_settings()
    client = Client(settings)
    is_running = client.is_running()
    facts = client.status() if is_running else None
    models = client.running_models() if is_running else []
    if json:
        address = {"url": settings.url, "host": settings.host, "port": settings.port}
        logs = {"log": str(settings.server_log)}
        told = {} if facts is None else msgspec.structs.asdict(facts)
        print_json(running=is_running, **address, **told, models=models, **logs)
    else:
        found = {"server": f"{'running' if is_running else 'not running'}, {settings.url}"}
        if facts is not None:
            found |= {
                "version": facts.server_version,
                "process": str(facts.pid),
                "up for": human_age(facts.uptime_s).lower(),
                "models": ", ".join(model.name for model in models) or "none loaded",
            }
            found |= {load.model: load_text(load) for load in facts.loading}
        print_facts(found)
    if not is_running:
        raise typer.Exit(ServerUnavailableError.exit_code)
