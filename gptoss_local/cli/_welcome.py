"""`gptoss` alone on a terminal: from nothing to a chat, with nothing to read first."""

from typing import TYPE_CHECKING

import typer

from gptoss_local.cli._first_model import ask_for_model
from gptoss_local.cli._output import INTERRUPTED, print_facts, say
from gptoss_local.cli.chat import chat
from gptoss_local.settings import Settings, load_settings

if TYPE_CHECKING:
    from gptoss_local.machine.hardware import Machine


def welcome() -> None:
    """Chat with the last model; if there is none yet but nano, help to get one first."""
    settings = load_settings()
    if _has_model(settings):
        say("Starting the chat with your last model. `gptoss --help` lists the commands.")
        chat()
        return
    try:
        name = _first_model(settings)
    except KeyboardInterrupt:
        say("\nGoodbye. `gptoss` continues here; `gptoss --help` lists the commands.")
        raise typer.Exit(INTERRUPTED) from None
    say(f"Starting the chat with {name}. In it, F1 shows the keys, and /quit leaves.")
    chat(name)


def _has_model(settings: Settings) -> bool:
    from gptoss_local.models.store import list_models

    return any(e.upstream or (e.path and not e.embedded) for e in list_models(settings))


def _first_model(settings: Settings) -> str:
    from gptoss_local.machine.hardware import read_machine

    print("Welcome to gptoss, which runs OpenAI's gpt-oss models on this machine.\n")
    machine = read_machine(settings.models_dir)
    print_facts(_facts(machine, settings))
    print()
    return ask_for_model(settings, machine)


def _facts(machine: "Machine", settings: Settings) -> dict[str, str]:
    from rich.filesize import decimal

    from gptoss_local.machine.hardware import free_bytes
    from gptoss_local.machine.plan.words import gib

    cards = [
        f"{gpu.name}, {gib(gpu.free_bytes)} of {gib(gpu.total_bytes)} are free"
        for gpu in machine.gpus
    ]
    if cards and not machine.usable_gpus:
        cards.append("not used, as llama.cpp is built without CUDA: see gptoss doctor")
    n = machine.n_cores
    facts = {
        "GPU": "\n".join(cards) or "none that NVIDIA's driver shows",
        "RAM": f"{gib(machine.available_bytes)} of {gib(machine.total_bytes)} are free",
        "CPU": f"{n} core{'s' * (n > 1)}" if n else "",
        "Disk": f"{decimal(free_bytes(settings.models_dir))} are free",
    }
    return {name: text for name, text in facts.items() if text}
