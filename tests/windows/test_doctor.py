"""Commands that look at the machine, on Windows' own Python."""

import json
import re

from tests.windows.conftest import ON_WINDOWS, Pc

pytestmark = ON_WINDOWS


def test_doctor(pc: Pc) -> None:
    found = pc.gptoss("doctor")
    assert re.search(r"^ok +CPU: \d+ physical cores", found, re.M)
    assert re.search(r"^ok +llama.cpp: Built for the CPU", found, re.M)
    assert "completion" not in found  # bash's would not help in PowerShell
    report = json.loads(pc.gptoss("doctor", "--json"))
    assert {finding["level"] for finding in report["findings"]} <= {"ok", "note"}


def test_plan(pc: Pc) -> None:
    assert "no NVIDIA GPU" in pc.gptoss("plan", "nano")
    plan = json.loads(pc.gptoss("plan", "nano", "--json"))
    assert plan["machine"]["platform"] == "windows"
    # Windows lets the driver lock half of the RAM.
    assert plan["machine"]["pinnable_bytes"] <= plan["machine"]["total_bytes"] // 2


def test_before_the_first_server(pc: Pc) -> None:
    assert "python" in pc.gptoss("tools")
    assert "no log yet" in pc.gptoss("logs")
    assert "not running" in pc.gptoss("status", code=7)


def test_the_command_is_on_path(pc: Pc) -> None:
    found = pc.start("-c", "import shutil; print(shutil.which('gptoss'))")
    assert found.wait() == 0
    assert found.printed.strip().lower().endswith(r"\scripts\gptoss.exe")
