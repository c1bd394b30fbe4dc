"""`gptoss plan` and `gptoss doctor`, as users call them."""

import json
import socket
import sys

import pytest

from gptoss_local.cli import doctor
from gptoss_local.machine.hardware import Machine
from tests.cli.conftest import Cli, run_cli
from tests.conftest import RunningServer

PC = ("plan", "gpt-oss:120b", "--vram", "16GiB", "--ram", "64GiB")
"""120b before it is here, on the PC of the README."""


def test_an_imagined_machine_does_not_take_the_cores_of_this_one(cli: Cli) -> None:
    """With cards and RAM given it is another PC, and the command lists its assumptions."""
    shown = cli(*PC).stdout
    for part in (
        "experts partly in RAM",
        "are pinned",
        "8 threads for prompts and 8 for answers",
        "- Assumed for the imagined machine: 8 cores, RAM of 75 GB/s (two channels of DDR5-4800) "
        "and an NVMe disk. --cores and --bandwidth change that.\n",
    ):
        assert part in shown
    bars = [line for line in shown.splitlines() if line.startswith(("VRAM 0", "RAM"))]
    assert [line[8:].count("#") > 20 for line in bars] == [True, True]

    def planned(*flags: str) -> dict[str, object]:
        data: dict[str, object] = json.loads(cli(*PC, *flags, "--json").stdout)["plan"]["speed"]
        return data

    data = json.loads(cli(*PC, "--ctx", "65536", "--json").stdout)
    assert data["plan"]["shape"]["n_ctx"] == 65_536
    assert data["plan"]["host"]["is_pinned"]
    assert data["machine"]["gpus"][0]["total_bytes"] == 16 * 2**30
    assert any(f"That is {data['request_s']:.1f} s for 4,096" in each for each in data["reasons"])
    assert (data["is_tuned"], data["machine"]["n_cores"]) == (False, 8)
    assert data["assumed"][0] == "8 cores"
    assert planned()["decode_tok_s"] == pytest.approx(22, abs=2)
    assert planned("--cores", "16", "--bandwidth", "150")["decode_tok_s"] == pytest.approx(
        33, abs=2
    )
    assert planned("--cores", "2")["decode_bound"] == "CPU"
    data = json.loads(cli("plan", "20b", "--vram", "12GiB", "--json").stdout)
    assert data["assumed"][0].startswith(f"{data['machine']['n_cores']} core")
    assert data["assumed"][0].endswith(" of this machine")


def test_plan_says_what_is_in_memory_already(fresh: dict[str, str]) -> None:
    """That is not free: without a word a model that is loaded seems not to fit."""
    shown = run_cli(fresh, "plan", "nano").stdout
    assert shown.startswith("nano: ")
    assert "in memory" not in shown
    run_cli(fresh, "load", "nano")
    assert "while the server has these in memory: nano." in run_cli(fresh, "plan", "nano").stdout
    assert "in memory" not in run_cli(fresh, "plan", "nano", "--ram", "32GiB").stdout


def test_bars_show_where_memory_ends(cli: Cli) -> None:
    """120b takes more RAM than there is: the bar continues past its end."""
    lines = cli("plan", "120b", "--vram", "12GiB", "--ram", "32GiB").stdout.splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("RAM"))
    bar = lines[row][8:].split()[0]
    assert len(bar) == 65
    assert bar.index("|") == pytest.approx(64 * 32 / 56.9, abs=1)
    assert "engine 0.8 GiB, other programs 3.2 GiB, 24.9 GiB more than" in lines[row + 1]
    assert all("|" not in line for line in lines if line.startswith("VRAM"))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("20b", "--vram", "8GiB", "--gpu-layers", "25"), 5, "25 layers on the GPU"),
        (("20b", "--vram", "much"), 2, "is not a size"),
        (("20b", "--preset", "fast"), 2, "Use balanced or latency or throughput or quiet."),
        (("20b", "--kv-type", "q5_1"), 2, "Use f16 or q8_0 or q4_0."),
        (("20b", "--cores", "0"), 2, "not in the range"),
        (("20b", "--bandwidth", "fast"), 2, "--bandwidth"),
        (("20b", "--vram", "16GiB,", "--ram", "64"), 2, "Write 64GiB"),
        (("20b", "--vram", "0.5"), 2, "Write 0.5GiB"),
        (("20b", "--vram", "8192"), 2, "Write 8192MiB"),
        (("20b", "--vram", ""), 2, "names no size"),
        (("20b", "--gpu", ""), 2, "names no card"),
        (("20b", "--gpu", " ,"), 2, "names no card"),
        (("20b", "--ram", ""), 2, "'' is not a size"),
        (("20b", "--gpu", "GTX 1060"), 2, "GTX 1060 6GB"),
        (("20b", "--vram", "1KiB"), 2, "Write 1GiB."),
        (("20b", "--vram", ","), 2, "names no size"),
        (("20b", "--vram", "9" * 400 + "GiB"), 2, "more than any memory"),
        (("120b", "--vram", "16GiB", "--ram", "1GiB"), 5, "15.4 GiB on a card like RTX 5060 Ti"),
        (("nope",), 3, "not found"),
    ],
)
def test_errors(cli: Cli, arguments: tuple[str, ...], code: int, text: str) -> None:
    done = cli("plan", *arguments)
    assert done.returncode == code
    assert text in done.stderr


def test_a_bug_report_has_all_facts_and_no_secrets(server: RunningServer) -> None:
    secrets = {"GPTOSS_API_KEY": "s3cret", "HF_TOKEN": "hf_secret", "CUDA_VISIBLE_DEVICES": "MIG-1"}
    done = run_cli(server.environment | secrets, "doctor", "--json")
    facts = json.loads(done.stdout)
    assert facts["versions"].keys() == {"gptoss", "llama_cpp_python", "python", "system"}
    assert facts["machine"].keys() == set(Machine.__struct_fields__)
    assert facts["machine"]["visible_devices"] == "MIG-1"
    assert {"llama.cpp", "CPU", "RAM", "disk"} <= {each["name"] for each in facts["findings"]}
    assert "s3cret" not in done.stdout
    assert "hf_secret" not in done.stdout


def test_doctor_tells_our_server_from_another_program(server: RunningServer) -> None:
    assert "server: gptoss answers" in run_cli(server.environment, "doctor").stdout
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = run_cli(server.environment | {"GPTOSS_PORT": port}, "doctor")
    assert done.returncode == 1
    assert "PROBLEM server: Another program listens" in done.stdout


def test_without_llama_cpp_doctor_says_so_and_the_rest_works(server: RunningServer) -> None:
    environment = server.environment | {"LLAMA_CPP_LIB_PATH": "/nonexistent"}
    done = run_cli(environment, "doctor")
    assert done.returncode == 1
    assert "llama.cpp: llama.cpp cannot be loaded: " in done.stdout
    for command in (["--help"], ["--version"], ["list"], ["plan", "nano"]):
        assert run_cli(environment, *command).returncode == 0


def test_doctor_names_the_signal_of_a_library_for_another_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that ends as with an instruction that its processor lacks."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(doctor, "_TRY_LLAMA", (sys.executable, "-c", code))
    assert "SIGILL" in doctor._llama_problem()
