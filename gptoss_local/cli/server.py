"""The commands of the server: serve, status, ps, load, stop, logs and web."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec
import typer
from rich.filesize import decimal

from gptoss_local.api.models import LoadStatus, ModelEnergy, RunningModel
from gptoss_local.base.errors import ServerUnavailableError, UnauthorizedError, UsageError
from gptoss_local.base.private import keep_memory_private
from gptoss_local.base.quantities import per_token
from gptoss_local.base.settings import load_settings
from gptoss_local.cli._loading import (
    continues,
    follow_load,
    load_text,
    loaded_model,
    warn_if_smaller,
)
from gptoss_local.cli._options import (
    Json,
    KeepAlive,
    ModelName,
    NamesOnly,
    keep_alive_of,
    named,
    server_for,
)
from gptoss_local.cli._output import (
    human_age,
    print_facts,
    print_json,
    print_names,
    print_table,
    progress_bar,
    say,
)
from gptoss_local.models.catalog import canonical_name


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
) -> None:
    settings = load_settings(host=host, port=port)
    import gc
    import signal

    # Before the slow imports: the kernel spares the first process of a container a signal that it
    # does not handle, so a `docker stop` during the start would do nothing.
    for number in (signal.SIGTERM, getattr(signal, "SIGBREAK", signal.SIGTERM)):
        signal.signal(number, lambda *_: sys.exit(0))

    keep_memory_private()
    gc.disable()  # PERF: 0.1 s; imports make no garbage
    from gptoss_local.server import app
    from gptoss_local.server.log_lines import log_to_terminal

    gc.freeze()
    gc.enable()
    log_to_terminal(settings.log_format)
    app.serve(settings)


def status(json: Json = False) -> None:
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
            found |= {"local network": "\n".join(facts.lan)} if facts.lan else {}
            shares = [
                f"{c.share:.0%} of the {c.n_prompt:,} tokens that {c.name} sent"
                for c in facts.clients
            ]
            found |= {"read from cache": "\n".join(shares)} if shares else {}
        print_facts(found)
    if not is_running:
        raise typer.Exit(ServerUnavailableError.exit_code)


_FOREVER_S = 50 * 365 * 86_400


def ps(quiet: NamesOnly = False, json: Json = False) -> None:
    from gptoss_local.api.client import Client

    client = Client(load_settings())
    is_running = client.is_running()
    models = client.running_models() if is_running else []
    if quiet:
        print_names(model.name for model in models)
        return
    loading: list[LoadStatus] = []
    with suppress(UnauthorizedError):  # a user's key sees the models alone
        loading = client.status().loading if is_running else []
    if json:
        print_json(models=models, loading=loading)
        return
    rows = [
        (
            model.name,
            model.digest[:12],
            decimal(model.size) if model.size else "-",
            processor(model),
            f"{model.context_length} {model.kv_type.removeprefix('f16')}".strip(),
            _until(model),
        )
        for model in models
    ]
    rows += [(load.model, "", "", load_text(load), "", "") for load in loading]
    header: tuple[str, ...] = ("NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL")
    energy = [energy_text(model.energy) for model in models]
    if any(energy):
        rows = [(*row, text) for row, text in zip_longest(rows, energy, fillvalue="")]
        header = (*header, "ENERGY")
    print_table(header, rows)


def processor(model: RunningModel) -> str:
    if model.remote_host:
        return model.remote_host
    if (share := model.vram_share) in (0, 1):
        return "100% GPU" if share else "100% CPU"
    cpu = round(100 * (1 - share))
    return f"{cpu}%/{100 - cpu}% CPU/GPU"


def energy_text(energy: ModelEnergy | None) -> str:
    """Return `0.42 J/token, 31 W`, as far as it is known."""
    parts = []
    if energy is not None and energy.joules_per_token is not None:
        parts.append(per_token(energy.joules_per_token))
    if energy is not None and energy.watts is not None:
        parts.append(f"{energy.watts:.0f} W")
    return ", ".join(parts)


def _until(model: RunningModel) -> str:
    left_s = (datetime.fromisoformat(model.expires_at) - datetime.now(UTC)).total_seconds()
    return "Forever" if left_s > _FOREVER_S else f"{human_age(left_s)} from now"


def load(
    model: ModelName,
    ctx: Annotated[
        int | None, typer.Option("--ctx", min=1, help="Least tokens of context.")
    ] = None,
    keep_alive: KeepAlive = "",
    json: Json = False,
) -> None:
    """With --json: a line per report, the last one with "event": "done"."""
    settings = load_settings()
    model = named(model, settings)
    client = server_for(model, settings)
    body: dict[str, Any] = {"model": model}
    if ctx is not None:
        body["options"] = {"num_ctx": ctx}
    if keep_alive:
        body["keep_alive"] = keep_alive_of(keep_alive)
    with progress_bar(tenths=True, quiet=json, if_interrupted=continues(model)) as bar:
        n_tries = follow_load(client, body, _print_as_json if json else bar)
    loaded = loaded_model(client, model)
    warn_if_smaller(loaded, ctx)
    if json:
        print_json(event="done", model=loaded)
    elif loaded is not None:
        tries = f", planned smaller {n_tries - 1} times" if n_tries > 1 else ""
        say(
            f"{canonical_name(model)} is loaded, {loaded.context_length:,} tokens of context{tries}"
        )


def _print_as_json(_what: str, done: int, total: int) -> None:
    print_json(event="progress", completed_bytes=done, total_bytes=total)


def stop(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="Model to unload; without one, the server ends."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Unload all models; the server keeps running.")
    ] = False,
) -> None:
    from gptoss_local.api.client import Client

    if every and model is not None:
        raise UsageError("either a model or --all")
    settings = load_settings()
    client = Client(settings)
    if not client.is_running():
        say("no server is running")
        return
    if model is None and not every:
        client.post("/api/gptoss/shutdown", {})
        say("the server is stopping")
        return
    loaded = [m.name for m in client.running_models()] if every else []
    for name in loaded if model is None else [named(model, settings)]:
        client.unload(name)
        say(f"unloaded {name}")


_POLL_S = 0.2


def logs(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing what is added, until Ctrl-C.")
    ] = False,
    n_lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Lines to begin with.")
    ] = 100,
    json: Json = False,
) -> None:
    """A server in the foreground (`gptoss serve`) logs to its terminal instead."""
    path = load_settings().server_log
    if not path.is_file():
        say(f"there is no log yet: {path}")
    for line in _lines(path, n_lines, follow):
        if json:
            print_json(line=line)
        else:
            print(line, flush=follow)


def _lines(path: Path, n_last: int, follow: bool) -> Iterator[str]:
    def _open() -> TextIO:
        return path.open(encoding="utf-8", errors="replace")

    while follow and not path.is_file():
        time.sleep(_POLL_S)
    if not path.is_file():
        return
    file = _open()
    try:
        yield from (line.rstrip("\n") for line in deque(file, maxlen=n_last))
        pending = ""
        while follow:
            pending += file.readline()
            if pending.endswith("\n"):
                yield pending[:-1]
                pending = ""
            elif path.is_file() and not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.close()  # a server that starts replaces a large log
                file = _open()
            else:
                time.sleep(_POLL_S)
    finally:
        file.close()
