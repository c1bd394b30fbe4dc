"""`gptoss doctor`: find and fix obstacles to a fast model on this machine."""

import asyncio
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
import typer
from rich.text import Text

from gptoss_local import __version__
from gptoss_local.api.client import Client
from gptoss_local.base.errors import GptOssError, ServerUnavailableError, UsageError
from gptoss_local.base.settings import (
    Settings,
    environment_without_secrets,
    load_settings,
    settings_without_file,
)
from gptoss_local.cli._console import CleanConsole
from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json
from gptoss_local.cli._question import confirm
from gptoss_local.cli.doctor.diagnosis import Level, Surroundings, Verdict, diagnose
from gptoss_local.cli.doctor.repair import find_faults
from gptoss_local.machine.hardware import Machine, free_bytes, llama_version, read_machine
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.models.store import ModelEntry, list_models
from gptoss_local.runner import losses

_TRY_LLAMA = (sys.executable, "-m", "gptoss_local.engine.llama")
_N_SIGN = 8
_SIGNS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "red")}


class Repair(msgspec.Struct, frozen=True):
    name: str
    result: Literal["repaired", "declined", "failed", "not repaired here"]
    text: str


def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be without losing anything; asks first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Files of gptoss, the command and its service are checked, too.

    No repair deletes a model, a chat or a file of yours.
    """
    if yes and not fix:
        raise UsageError("--yes needs --fix")
    if fix and not yes and (json or not sys.stdin.isatty()):
        raise UsageError("there is no terminal to ask on", hint="gptoss doctor --fix --yes")
    try:
        settings = load_settings()
    except UsageError:
        settings = settings_without_file()
    machine = read_machine(settings.models_dir)
    done: list[tuple[Verdict, Repair | None]] = []
    for finding in chain(
        diagnose(machine, _look_around(settings)),
        _upstreams(settings),
        _scores(machine, settings),
        find_faults(settings),
    ):
        if not json:
            _print(finding)
        outcome = _repair(finding, asks=not yes) if fix and finding.level != "ok" else None
        done.append((finding, outcome))
        if not json and (below := outcome.text if outcome else finding.fix):
            CleanConsole().print_item(" " * _N_SIGN, below)
    if json:
        repairs = {"repairs": [outcome for _, outcome in done if outcome]} if fix else {}
        found = [
            {"name": f.name, "level": f.level, "text": f.text, "fix": f.fix}
            | {"can_fix": f.repair is not None}
            for f, _ in done
        ]
        print_json(versions=_versions(), machine=machine, findings=found, **repairs)
    elif not fix and (n_repairs := sum(finding.repair is not None for finding, _ in done)):
        print(f"\n{n_repairs} of these can be repaired here: gptoss doctor --fix")
    problems = [outcome for finding, outcome in done if finding.level == "problem"]
    if any(outcome is None or outcome.result != "repaired" for outcome in problems):
        raise typer.Exit(1)


def _print(finding: Verdict) -> None:
    word, colour = _SIGNS[finding.level]
    sign = Text(f"{word:<{_N_SIGN}}", colour)
    CleanConsole().print_item(sign, f"{finding.name}: {finding.text}")


def _repair(finding: Verdict, *, asks: bool) -> Repair:
    name = finding.name
    if finding.repair is None:
        return Repair(name, "not repaired here", f"For you to do: {finding.fix}")
    if asks and not confirm(f"        {finding.question}", default=True):
        return Repair(name, "declined", "Left as it is.")
    try:
        return Repair(name, "repaired", f"Done. {finding.repair()}")
    except GptOssError as error:
        return Repair(name, "failed", f"Not done: {error.message}. {error.hint}".strip())
    except OSError as error:
        return Repair(name, "failed", f"Not done: {error.strerror or error}.")


def _versions() -> dict[str, str]:
    return {
        "gptoss": __version__,
        "llama_cpp_python": llama_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def _look_around(settings: Settings) -> Surroundings:
    return Surroundings(
        models_dir=str(settings.models_dir),
        disk_free_bytes=free_bytes(settings.models_dir),
        has_model=any(e.path and not e.embedded for e in _models(settings)),
        address=settings.url,
        answers=_who_answers(settings),
        kv_type=settings.kv_type,
        llama_problem=_llama_problem(),
        losses=tuple(losses.read(settings)),
    )


def _scores(machine: Machine, settings: Settings) -> Iterator[Verdict]:
    from gptoss_local.cli.eval.scores import stale

    for run, changed in stale(machine, settings):
        name = f"{run.suite} {run.model}"
        text = f"The scores of `gptoss eval {name}` were saved on {run.date[:10]}"
        if changed:
            text += f"; since then, {' and '.join(changed)} changed."
            yield Verdict("scores", "note", text, f"Compare: gptoss eval {name} --save")
        else:
            yield Verdict("scores", "ok", f"{text}; nothing has changed since.")


def _llama_problem() -> str:
    """Say why llama.cpp cannot be loaded; empty if it can. A process of its own tries it."""
    env = environment_without_secrets()
    done = subprocess.run(
        _TRY_LLAMA, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env
    )
    if done.returncode < 0:
        return f"it ended with {signal.Signals(-done.returncode).name}, as on a wrong processor."
    said = done.stderr.strip().rpartition("\n")[2]
    return (said.partition("Error: ")[2] or said) if done.returncode else ""


def _models(settings: Settings) -> list[ModelEntry]:
    try:
        return list_models(settings)
    except (GptOssError, OSError):  # a folder that may not be read
        return []


def _upstreams(settings: Settings) -> list[Verdict]:
    found = [(e.name, e.upstream) for e in _models(settings) if e.upstream]

    async def look() -> list[Verdict]:
        return await asyncio.gather(*(_upstream(name, address) for name, address in found))

    return asyncio.run(look()) if found else []


async def _upstream(model: str, address: UpstreamAddress) -> Verdict:
    from gptoss_local.runner.upstream.connection import silent_urls

    name = f"model {model}"
    try:
        silent = await silent_urls(model, address)
    except GptOssError as error:  # no key
        return Verdict(name, "problem", f"{error.message}.", "Set it where the server starts.")
    if not silent:
        return Verdict(name, "ok", f"{address.kind} at {', '.join(address.urls)} is well.")
    level: Level = "problem" if len(silent) == len(address.urls) else "note"
    text = f"{address.kind} at {', '.join(silent)} does not say that it is well."
    return Verdict(name, level, text, f"`gptoss upstream test {model}` says more.")


def _who_answers(settings: Settings) -> Literal["gptoss", "other", "nobody", "no address"]:
    try:
        if Client(settings).is_running():
            return "gptoss"
    except ServerUnavailableError:
        return "other"
    host = urlsplit(settings.url).hostname or ""
    try:
        socket.create_connection((host, settings.port), timeout=2).close()
    except socket.gaierror:
        return "no address"
    except OSError:
        return "nobody"
    return "other"
