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
    assert answer["capacity"]["n_machines"] == 1
    assert answer["capacity"]["user_tok_s"] > 0.1


def test_another_machine() -> None:
    ran = run_cli(dict(os.environ), "capacity", str(H100), "1000", "--answer", "100")
    found = re.search(r"1,000 users of gpt-oss:20b: (\d+) machines like this", ran.stdout)
    assert found, ran.stderr
    assert 2 <= int(found[1]) <= 20
    assert "10 % of the users" in ran.stdout


@pytest.mark.quick
def test_a_machine_with_known_speeds(tmp_path: Path) -> None:
    """Four answers at a time have 50 tokens/s each, whatever their length; prompts cost 1 ms."""
    benchmark = {
        "model": "flat",
        "n_ctx": 8192,
        "depths": [
            {"n_tokens": n, "prefill_tok_s": 1e3 * n, "decode_tok_s": 50} for n in (50, 500)
        ],
        "widths": [{"n_streams": n, "decode_tok_s": 50 * n} for n in (1, 4)],
        "plan": {"shape": {"n_seq": 4}},
    }
    (tmp_path / "bench.json").write_text(json.dumps({"benchmark": benchmark}))

    def machines(*options: str) -> dict[str, float]:
        command = ("capacity", str(tmp_path / "bench.json"), "100", "--json", "--prompt", "50")
        ran = run_cli(dict(os.environ), *command, "--answer", "40", *options)
        assert ran.returncode == 0, ran.stderr
        found: dict[str, float] = json.loads(ran.stdout)["capacity"]
        return found

    found = machines("--tokens-per-user-s", "25")
    # 0.7 of 4 / 20.1 ms (a prompt's millisecond is shared by 40 tokens of four answers); 2.5 a user
    assert found["users_per_machine"] == int(0.7 * 4 / 0.0201 / 2.5)
    assert found["n_machines"] == 2
    assert found["n_cells"] == 10 * 90
    # a prompt may wait a thousandth of its own time, so hardly two come together
    strict = machines("--tokens-per-user-s", "25", "--first-token", "0.0010001")
    assert strict["users_per_machine"] == 1
    assert machines("--tokens-per-user-s", "49")["n_machines"] > found["n_machines"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((str(H100),), 2, "missing argument"),
        ((str(H100), "0"), 2, "0 is not in the range x>=1"),
        ((str(H100), "people"), 2, "not a whole number"),
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
