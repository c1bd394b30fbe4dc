"""Check an installation: its llama.cpp, the verdict of doctor, an answer of nano."""

import json
import os
import re
import socket
from pathlib import Path

from environments import program_of, python_of
from steps import Log, SetupError, answer_of


def unsuitable(log: Log, environment: Path, architectures: tuple[str, ...]) -> str:
    """Return why an environment's llama.cpp does not suit this machine; empty if it does.

    It is loaded in a process of its own, which dies if it is for another processor.
    """
    lines: list[str] = []
    try:
        command = [python_of(environment), "-m", "gptoss_local.engine.llama"]
        log.run(command, failed="It does not load here", hint="", on_line=lines.append)
    except SetupError as error:
        return f"{error} {''.join(lines[-1:])}".strip()
    return judge("".join(lines), architectures, _cpuinfo())


def judge(info: str, architectures: tuple[str, ...], cpuinfo: str) -> str:
    """Read llama.cpp's `CUDA : ARCHS = 860,890 | … | CPU : AVX2 = 1 | …`.

    It must have code for `architectures` (`120a-real`), and use the features in `cpuinfo`.
    """
    for flag, name in (("avx2", "AVX2"), ("asimddp", "DOTPROD")):  # of x86, of Arm
        has_it = re.search(rf"\b{flag}\b", cpuinfo) is not None
        if has_it and not re.search(rf"\b{name} = 1\b", info):
            return f"It does not use this processor's {name}."
    listed = re.search(r"\bARCHS = ([\d,]+)", info)
    held = {int(number) for number in listed[1].split(",")} if listed else set()
    wanted = {int(re.sub(r"\D", "", name)) * 10 for name in architectures}
    if missing := sorted(wanted - held):
        return f"It has no machine code for compute capability {missing[0] / 100:.1f}."
    return ""


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
    found = json.loads(shown)["findings"]
    return [f"{f['name']}: {f['text']} {f['fix']}" for f in found if f["level"] == "problem"]


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if os.name == "posix" and path.is_file() else ""
