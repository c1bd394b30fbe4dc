"""Check an installation: its llama.cpp, an answer of nano, and the verdict of doctor."""

import json
import socket
from pathlib import Path

from environments import program_of, python_of
from steps import Log, SetupError, answer_of


def has_gpu(environment: Path) -> bool:
    """Return whether an environment's llama.cpp finds a GPU, in a process that may die of it."""
    code = "from gptoss_local.engine.llama import has_gpu; print(has_gpu())"
    return (answer_of([python_of(environment), "-c", code]) or "").strip() == "True"


def check_answer(log: Log, environment: Path) -> str:
    program = program_of(environment, "gptoss")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {"GPTOSS_PORT": port, "GPTOSS_HOST": "127.0.0.1"}
    try:
        log.run(
            [program, "run", "nano", "What is the capital of France?"],
            failed="The built-in model nano gave no answer",
            hint="`gptoss doctor` in the new installation may say why.",
            env=variables,
        )
        loaded = answer_of([program, "ps", "--json"], env=variables)
    finally:
        answer_of([program, "stop"], env=variables)
    model = json.loads(loaded or "{}").get("models", [{}])[0]
    return "the GPU" if model.get("size_vram") else "the CPU"


def problems(environment: Path) -> list[str]:
    program = program_of(environment, "gptoss")
    shown = answer_of([program, "doctor", "--json"], statuses=(0, 1))  # 1: it found some
    if not shown:
        raise SetupError("gptoss doctor does not run.", "The log says why.")
    found = [each for each in json.loads(shown)["findings"] if each["level"] == "problem"]
    return [f"doctor: {each['name']}: {each['text']} {each['fix']}" for each in found]
