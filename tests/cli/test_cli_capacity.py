"""`gptoss capacity`: from measurements to a number of machines."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, run_cli

H100 = Path(__file__).parents[2] / "bench" / "results" / "h100-20b.json"


def test_what_bench_prints_is_read(cli: Cli, tmp_path: Path) -> None:
    measured = tmp_path / "bench.json"
    measured.write_text(cli("bench", "nano", "--ctx", "2048", "--parallel", "2", "--json").stdout)
    found = json.loads(measured.read_text())["benchmark"]
    assert all(d["n_cells_cached"] >= 0 for d in found["depths"] + found["widths"])
    assert found["depths"][1]["n_cells_cached"] > 0  # of the prompt before
    ran = cli("capacity", str(measured), "2", "--tokens-per-user-s", "0.1",
              "--prompt", "100", "--answer", "20", "--first-token", "60", "--json")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert (answer["version"], answer["model"]) == (1, "nano")
    assert answer["profile"]["n_seq"] == 2
    assert answer["capacity"]["n_machines"] == 1
    assert answer["capacity"]["load"]["user_tok_s"] > 0.1
    assert "simulating" in ran.stderr


def test_another_machine() -> None:
    ran = run_cli(dict(os.environ), "capacity", str(H100), "1000", "--answer", "100")
    found = re.search(r"1,000 users of gpt-oss:20b: (\d+) machines like this", ran.stdout)
    assert found, ran.stderr
    assert 2 <= int(found[1]) <= 20
    assert "10 % of the users" in ran.stdout


def test_recorded_arrivals(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = {"input_length": 3000, "output_length": 50}
    lines = [
        line | {"timestamp": 20 * n, "hash_ids": [n % 5 * 10 + k for k in range(6)]}
        for n in range(60)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    ran = run_cli(dict(os.environ), "capacity", str(H100), str(trace), "--first-token", "2")
    assert ran.returncode == 0, ran.stderr
    assert "60 requests of" in ran.stdout
    assert "least outstanding" in ran.stdout
    assert "prefix-aware" in ran.stdout


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((str(H100),), 2, "missing argument"),
        ((str(H100), "0"), 2, "one user or more"),
        ((str(H100), "none.jsonl"), 2, "there is no file none.jsonl"),
        (("nano", "3"), 2, "there is no file nano"),
        ((__file__, "3"), 2, "is not what `gptoss bench --json` prints"),
        ((str(H100), "3", "--prompt", "200000"), 8, "200,300 tokens"),
        ((str(H100), "3", "--tokens-per-user-s", "900"), 5, "answer alone"),
    ],
)  # fmt: skip
def test_errors(arguments: tuple[str, ...], code: int, says: str) -> None:
    ran = run_cli(dict(os.environ), "capacity", *arguments)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
