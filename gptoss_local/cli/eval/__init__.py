"""`gptoss eval`: how good the answers of a model are here, with intervals."""

import importlib.util
import os
import sys
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
import typer

from gptoss_local.api.client import owner_key
from gptoss_local.base.errors import GptOssError, ServerUnavailableError, UsageError
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.types import Effort
from gptoss_local.cli._first_model import chosen_model
from gptoss_local.cli._options import Json, Quiet, named, server_for
from gptoss_local.cli._output import INTERRUPTED, RESUMABLE, print_json, print_table, say, shortened
from gptoss_local.cli._question import confirm, has_terminal
from gptoss_local.cli.eval.scores import (
    SUITES,
    Run,
    Server,
    Tally,
    changes,
    facts_of,
    interval,
    is_lower,
    keep,
    read_runs,
)
from gptoss_local.machine.hardware import read_machine
from gptoss_local.models.store import find_model

_SuiteName = Literal["smoke", "gpqa", "aime25", "ifeval", "bfcl"]


def eval_(
    suite: Annotated[
        _SuiteName,
        typer.Argument(metavar="smoke|gpqa|aime25|ifeval|bfcl", help="The questions to ask."),
    ],
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Its name on the server.")
    ] = None,
    effort: Annotated[
        Effort, typer.Option("--effort", help="How long the model thinks.")
    ] = "medium",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Ask the first N questions only.")
    ] = None,
    url: Annotated[str, typer.Option(help="Ask another server, as http://HOST:11434.")] = "",
    against: Annotated[
        str, typer.Option(metavar="URL", help="Ask this server, too, and compare.")
    ] = "",
    against_model: Annotated[
        str, typer.Option(metavar="MODEL", help="The model's name there.")
    ] = "",
    key_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="The variable with the key of that server.")
    ] = "",
    save: Annotated[
        bool, typer.Option("--save", help="Later runs and `gptoss doctor` compare with this one.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Download the questions without asking.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """`smoke` needs no download, and the others are published.

    Exit code 1 says that a score is lower than the saved one.
    """
    settings = load_settings()
    # A proxy set for the internet must not get requests for this machine.
    os.environ["NO_PROXY"] = f"{os.environ.get('NO_PROXY', '')},127.0.0.1,localhost,::1"
    if url and (against or save):
        raise UsageError(f"--url and --{'against' if against else 'save'} exclude each other")
    if (key_env and not (url or against)) or (against_model and not against):
        raise UsageError("--key-env and --against-model need --against, the address of a server")
    if importlib.util.find_spec("inspect_ai") is None:
        raise UsageError(
            "scores need the library inspect-ai, which is not installed",
            hint="Install it where gptoss is: pip install 'gptoss-local[eval]'",
        )
    if SUITES[suite].download and not yes:
        _agree(SUITES[suite].download)
    servers = [] if url else [_own(model, settings)]
    if url or against:
        name = (model or "") if url else against_model
        servers.append(_other(url or against, name, key_env))
    from gptoss_local.cli.eval.asking import ask

    earlier, runs = read_runs(settings), list[Run]()
    try:
        for server in servers:
            run = ask(suite, server, effort, limit, settings, is_saved=save, quiet=quiet)
            keep(run, settings)
            runs.append(run)
    except KeyboardInterrupt:
        say(RESUMABLE)
        sys.exit(INTERRUPTED)
    alike = [run for run in earlier if run.asks_as(runs[0])]
    saved = next((run for run in reversed(alike) if run.is_saved), None)
    if json:
        print_json(runs=[_figures(run) for run in runs], last=alike[-1:], saved=saved)
    else:
        _print(runs, alike[-1] if alike else None, saved)
    _compare(runs[0], saved)


def _agree(download: str) -> None:
    if not has_terminal():
        raise UsageError("there is no terminal to ask on", hint=f"--yes downloads {download}.")
    if not confirm(f"Download {download}, unless they are here?", default=True):
        raise typer.Exit(1)


def _own(model: str | None, settings: Settings) -> Server:
    name = named(model, settings) if model else chosen_model(settings)
    server_for(name, settings)
    entry = find_model(name, settings)
    facts = facts_of(entry, read_machine(settings.models_dir), settings)
    return Server(settings.url, entry.name, owner_key(settings), facts)


def _other(url: str, model: str, key_env: str) -> Server:
    """Return another server; with a single model it needs no name."""
    import httpx2

    url = url.rstrip("/").removesuffix("/v1")
    key = os.environ.get(key_env, "") if key_env else ""
    if key_env and not key:
        raise UsageError(f"the variable {key_env} is not set")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx2.get(f"{url}/v1/models", headers=headers).raise_for_status()
        names = [each["id"] for each in answer.json()["data"]]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise ServerUnavailableError(f"{url}/v1/models does not list models: {error}") from error
    if not model and len(names) != 1:
        raise UsageError(f"{url} has several models", hint=f"Name one: {', '.join(names)}")
    return Server(url, model or names[0], key)


def _figures(run: Run) -> dict[str, Any]:
    by_category = {name: _interval(tally) for name, tally in run.scores.items()}
    return {**msgspec.to_builtins(run), "intervals": by_category, "total": _interval(run.total)}


def _interval(tally: Tally) -> dict[str, float]:
    low, high = interval(tally)
    return {"share": tally.right / tally.n, "low": round(low, 4), "high": round(high, 4)}


def _print(runs: list[Run], last: Run | None, saved: Run | None) -> None:
    run = runs[0]
    others = {urlsplit(other.url).netloc.upper(): other for other in runs[1:]}
    others |= {"LAST": last} if last and last != saved else {}
    others |= {f"SAVED {saved.date[:10]}": saved} if saved else {}
    published = SUITES[run.suite].published.get(run.model, {}).get(run.effort)
    rows = []
    for name, tally in (*run.scores.items(), ("all", run.total)):
        if name == "all" and len(run.scores) == 1:
            continue
        low, high = (f"{100 * bound:.0f}" for bound in interval(tally))
        beside = [_of(o.total if name == "all" else o.scores.get(name)) for o in others.values()]
        openai = [f"{100 * published:.0f} %"] if published else []
        miss = shortened(tally.miss)
        rows.append([name, _of(tally), f"{low} to {high} %", *beside, *openai, miss])
    titles = ["OPENAI"] if published else []
    print_table(["", "RIGHT", "95 % INTERVAL", *others, *titles, "FIRST MISS"], rows)


def _of(tally: Tally | None) -> str:
    return f"{tally.right:g} of {tally.n}" if tally else "-"


def _compare(run: Run, saved: Run | None) -> None:
    if saved is None:
        return
    before = {**saved.scores, "all": saved.total}
    lower = [
        f"{name}: {_of(tally)}, saved {_of(before[name])}"
        for name, tally in (*run.scores.items(), ("all", run.total))
        if is_lower(tally, before[name])
    ]
    if lower:
        changed = ", ".join(changes(saved, run.facts)) or "nothing that gptoss knows of"
        listed = "".join(f"\n  - {line}" for line in lower)
        raise GptOssError(
            f"scores are lower than on {saved.date[:10]}, by more than chance:{listed}",
            hint=f"Changed since: {changed}.",
        )
