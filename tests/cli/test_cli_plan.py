"""`gptoss plan` and `gptoss doctor`, as users call them."""

import json
import socket

import pytest

from tests.cli.conftest import Cli, run_cli
from tests.conftest import RunningServer


def test_plan_of_nano_on_this_machine(cli: Cli) -> None:
    shown = cli("plan", "nano").stdout
    assert shown.startswith("nano: ")
    assert "RAM" in shown
    assert "tokens of context" in shown


def test_plan_of_an_imagined_machine(cli: Cli) -> None:
    """120b before it is here, on the PC of the README."""
    shown = cli("plan", "gpt-oss:120b", "--vram", "16GiB", "--ram", "64GiB").stdout
    assert "experts partly in RAM" in shown
    assert "are pinned" in shown
    bars = [line for line in shown.splitlines() if line.startswith(("VRAM 0", "RAM"))]
    assert [line[8:].count("#") > 20 for line in bars] == [True, True]
    data = json.loads(
        cli("plan", "120b", "--vram", "16GiB", "--ram", "64GiB", "--ctx", "65536", "--json").stdout
    )
    assert data["plan"]["shape"]["n_ctx"] == 65_536
    assert data["plan"]["host"]["is_pinned"]
    assert data["machine"]["gpus"][0]["total_bytes"] == 16 * 2**30
    assert any(f"That is {data['request_s']:.1f} s for 4,096" in each for each in data["reasons"])
    assert data["is_tuned"] is False


def test_plan_says_what_is_in_memory_already(fresh: dict[str, str]) -> None:
    """That is not free: without a word a model that is loaded seems not to fit."""
    assert "in memory" not in run_cli(fresh, "plan", "nano").stdout
    run_cli(fresh, "load", "nano")
    assert "what the server has in memory: nano." in run_cli(fresh, "plan", "nano").stdout
    assert "in memory" not in run_cli(fresh, "plan", "nano", "--ram", "32GiB").stdout


def test_two_cards_and_none(cli: Cli) -> None:
    two = json.loads(cli("plan", "20b", "--vram", "8GiB,8GiB", "--json").stdout)
    assert sum(two["plan"]["placement"]["layers_per_gpu"]) == 25
    none = json.loads(cli("plan", "20b", "--vram", "0", "--ram", "32GiB", "--json").stdout)
    assert none["plan"]["placement"]["n_gpu_layers"] == 0


def test_bars_show_where_memory_ends(cli: Cli) -> None:
    """120b takes more RAM than there is: the bar goes on behind its end."""
    lines = cli("plan", "120b", "--vram", "12GiB", "--ram", "32GiB").stdout.splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("RAM"))
    bar = lines[row][8:].split()[0]
    assert len(bar) == 65
    assert bar.index("|") == pytest.approx(64 * 32 / 56.9, abs=1)
    assert "engine 0.8 GiB, other programs 3.2 GiB, 24.9 GiB more than" in lines[row + 1]
    assert all("|" not in line for line in lines if line.startswith("VRAM"))


def test_a_card_of_no_use_has_a_bar(cli: Cli) -> None:
    """Of which others have a part, too."""
    shown = cli("plan", "20b", "--vram", "1GiB", "--ram", "32GiB").stdout
    assert shown.startswith("gpt-oss:20b: CPU")
    assert "VRAM 0  xxxxxx" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("20b", "--vram", "8GiB", "--gpu-layers", "25"), 5, "25 layers on the GPU"),
        (("20b", "--vram", "much"), 2, "is not a size"),
        (("20b", "--vram", "16GiB,", "--ram", "64"), 2, "Write 64GiB"),
        (("20b", "--vram", "0.5"), 2, "Write 0.5GiB"),
        (("20b", "--vram", ","), 2, "names no size"),
        (("20b", "--vram", "9" * 400 + "GiB"), 2, "more than any memory"),
        (("20b", "--gpu-layers", "-5"), 2, "not in the range"),
        (("120b", "--vram", "16GiB", "--ram", "1GiB"), 5, "15.4 GiB on a card like RTX 5060 Ti"),
        (("nope",), 3, "not found"),
    ],
)
def test_errors(cli: Cli, arguments: tuple[str, ...], code: int, text: str) -> None:
    done = cli("plan", *arguments)
    assert done.returncode == code
    assert text in done.stderr


def test_doctor_sees_our_server(cli: Cli) -> None:
    findings = {
        each["name"]: each for each in json.loads(cli("doctor", "--json").stdout)["findings"]
    }
    assert findings["server"]["text"].startswith("gptoss answers at")
    assert {"llama.cpp", "CPU", "RAM", "disk"} <= findings.keys()
    assert "server: gptoss answers" in cli("doctor").stdout


def test_doctor_sees_another_program(server: RunningServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = run_cli(server.environment | {"GPTOSS_PORT": port}, "doctor")
    assert done.returncode == 1
    assert "PROBLEM server: Another program listens" in done.stdout


def test_doctor_on_a_host_that_is_none_and_a_folder_that_may_not_be_read(
    server: RunningServer,
) -> None:
    wrong = {"GPTOSS_HOST": "no.such.host.invalid", "GPTOSS_HOME": "/proc/1/root/none"}
    done = run_cli(server.environment | wrong, "doctor")
    assert done.returncode == 1
    assert "http://no.such.host.invalid:" in done.stdout
    assert "has no address" in done.stdout
    assert "disk: " in done.stdout
    assert "Traceback" not in done.stderr
