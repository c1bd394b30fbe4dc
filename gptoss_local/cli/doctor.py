"""`gptoss doctor`: what stands in the way of a fast model here, and how to fix it."""

import sys
from typing import TYPE_CHECKING, Literal

import typer

from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json
from gptoss_local.settings import Settings, load_settings

if TYPE_CHECKING:
    from gptoss_local.catalog import UpstreamAddress
    from gptoss_local.diagnosis import Surroundings, UpstreamState

_TRY_LLAMA = (sys.executable, "-m", "gptoss_local.llama")
_SIGNS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "red")}


def doctor(json: Json = False) -> None:
    """Check GPU, driver, build, memory, disk and port; exit code 1 if there is a problem."""
    from rich.text import Text

    from gptoss_local.cli._console import CleanConsole
    from gptoss_local.diagnosis import diagnose
    from gptoss_local.machine.hardware import read_machine

    settings = load_settings()
    machine = read_machine(settings.models_dir)
    findings = diagnose(machine, _look_around(settings))
    if json:
        print_json(versions=_versions(), machine=machine, findings=findings)
    else:
        console = CleanConsole()
        for finding in findings:
            sign, colour = _SIGNS[finding.level]
            console.print(Text.assemble((f"{sign:<8}", colour), f"{finding.name}: {finding.text}"))
            if finding.fix:
                console.print(Text(f"        {finding.fix}"))
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(1)


def _versions() -> dict[str, str]:
    import platform

    from gptoss_local import __version__
    from gptoss_local.machine.hardware import llama_version

    return {
        "gptoss": __version__,
        "llama_cpp_python": llama_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def _look_around(settings: Settings) -> "Surroundings":
    import os
    import shutil

    from gptoss_local.diagnosis import Surroundings

    folder = settings.models_dir.absolute()
    while not os.path.isdir(folder):
        folder = folder.parent
    return Surroundings(
        models_dir=str(settings.models_dir),
        disk_free_bytes=shutil.disk_usage(folder).free,
        has_model=_has_model(settings),
        address=settings.url,
        answers=_who_answers(settings),
        upstreams=_upstreams(settings),
        llama_problem=_llama_problem(),
    )


def _llama_problem() -> str:
    """Return why llama.cpp cannot be loaded; empty if it can. A process of its own tries it."""
    import signal
    import subprocess

    done = subprocess.run(_TRY_LLAMA, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode < 0:
        return f"it ended with {signal.Signals(-done.returncode).name}, as on a wrong processor."
    said = done.stderr.strip().rpartition("\n")[2]
    return (said.partition("Error: ")[2] or said) if done.returncode else ""


def _has_model(settings: Settings) -> bool:
    from gptoss_local.errors import GptOssError
    from gptoss_local.store import list_models

    try:
        return any(e.path and not e.embedded for e in list_models(settings))
    except (GptOssError, OSError):  # a folder that may not be read
        return False


def _upstreams(settings: Settings) -> "tuple[UpstreamState, ...]":
    from gptoss_local.errors import GptOssError
    from gptoss_local.store import list_models

    try:
        found = [(e.name, e.upstream) for e in list_models(settings) if e.upstream]
    except (GptOssError, OSError):
        return ()
    if not found:
        return ()
    import asyncio

    async def look() -> "list[UpstreamState]":
        return await asyncio.gather(*(_state(name, address) for name, address in found))

    return tuple(asyncio.run(look()))


async def _state(name: str, address: "UpstreamAddress") -> "UpstreamState":
    from gptoss_local.diagnosis import UpstreamState
    from gptoss_local.errors import GptOssError
    from gptoss_local.upstream.connection import silent_urls

    try:
        silent, problem = await silent_urls(name, address), ""
    except GptOssError as error:  # no key
        silent, problem = (), error.message
    return UpstreamState(name, address.kind, address.urls, silent, problem)


def _who_answers(settings: Settings) -> Literal["gptoss", "other", "nobody", "no address"]:
    import socket

    from gptoss_local.client import Client
    from gptoss_local.errors import ServerUnavailableError

    try:
        if Client(settings).is_running():
            return "gptoss"
    except ServerUnavailableError:
        return "other"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    try:
        socket.create_connection((host, settings.port), timeout=2).close()
    except socket.gaierror:
        return "no address"
    except OSError:
        return "nobody"
    return "other"
