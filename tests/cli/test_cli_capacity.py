"""`gptoss capacity`: from what was measured here or elsewhere to a number of machines."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Cli, run_cli

H100 = Path(__file__).parents[2] / "bench" / "results" / "h100-20b.json"


def test_here_after_tune(fresh: dict[str, str]) -> None:
    """Before it, the error says what to run; that is run; then there is an answer."""
    ask = ("capacity", "nano", "--users", "4", "--tokens-per-user-s", "0.1", "--prompt", "40",
           "--answer", "20", "--first-token", "60", "--quiet")  # fmt: skip
    ran = run_cli(fresh, *ask)
    assert ran.returncode == 2
    assert "nothing has been measured of nano" in ran.stderr
    assert "`gptoss tune nano`" in ran.stderr
    assert run_cli(fresh, "tune", "nano", "--quiet").returncode == 0
    ran = run_cli(fresh, *ask)
    assert ran.returncode == 0, ran.stderr
    assert "4 users of nano: 1 machine like this" in ran.stdout
    assert "measured here on" in ran.stdout
    assert "10 % of the users" in ran.stdout
    assert ran.stderr == ""


def test_what_bench_prints_is_read(cli: Cli, tmp_path: Path) -> None:
    measured = tmp_path / "bench.json"
    measured.write_text(cli("bench", "nano", "--ctx", "2048", "--parallel", "2", "--json").stdout)
    found = json.loads(measured.read_text())["benchmark"]
    assert all(d["n_cells_cached"] >= 0 for d in found["depths"] + found["widths"])
    assert found["depths"][1]["n_cells_cached"] > 0  # of the prompt before
    ran = cli("capacity", "--users", "2", "--bench", str(measured), "--tokens-per-user-s", "0.1",
              "--prompt", "100", "--answer", "20", "--first-token", "60", "--json")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert (answer["version"], answer["model"]) == (1, "nano")
    assert answer["profile"]["n_seq"] == 2
    assert answer["capacity"]["n_machines"] == 1
    assert answer["capacity"]["load"]["user_tok_s"] > 0.1
    assert "simulating" in ran.stderr


def test_picture_of_another_machine(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "capacity.svg"
    ran = cli("capacity", "--users", "1000", "--bench", str(H100), "--answer", "100",
              "--plot", str(picture), "--json", "--quiet")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)["capacity"]
    assert 2 <= found["n_machines"] <= 20
    assert found["largest"]["user_tok_s"] >= 15
    texts = [e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("text")]
    assert f"gpt-oss:20b: one machine carries {found['users_per_machine']:,} users" in texts
    assert {"Tokens/s of each answer", "First token (s)"} <= set(texts)


def test_recorded_arrivals(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = {"input_length": 3000, "output_length": 50}
    lines = [
        line | {"timestamp": 20 * n, "hash_ids": [n % 5 * 10 + k for k in range(6)]}
        for n in range(60)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    ran = cli("capacity", "--arrivals", str(trace), "--bench", str(H100), "--first-token", "2")
    assert ran.returncode == 0, ran.stderr
    assert "60 requests of" in ran.stdout
    assert "least outstanding" in ran.stdout
    assert "prefix-aware" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--users", "3"), 2, "neither a MODEL nor a --bench file"),
        (("nano",), 2, "either --users or --arrivals"),
        (("--users", "3", "--bench", "none.json"), 2, "there is no file none.json"),
        (("--users", "3", "--bench", __file__), 2, "is not what `gptoss bench --json` prints"),
        (("--users", "3", "--bench", str(H100), "--parallel", "32"), 2, "of 16 answers at most"),
        (("--users", "3", "--bench", str(H100), "--prompt", "200000"), 8, "200,300 tokens"),
        (("--users", "3", "--bench", str(H100), "--tokens-per-user-s", "900"), 5, "answer alone"),
        (("--users", "3", "--bench", str(H100), "--plot", "a.gif"), 2, "not a .svg or .png file"),
        (("--users", "3", "no-such-model"), 3, "no-such-model"),
    ],
)  # fmt: skip
def test_errors(cli: Cli, arguments: tuple[str, ...], code: int, says: str) -> None:
    ran = cli("capacity", *arguments)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_bench_without_speed_is_refused(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    broken = json.loads(H100.read_text())
    broken["benchmark"]["widths"][0]["decode_tok_s"] = 0
    file.write_text(json.dumps(broken))
    ran = cli("capacity", "--users", "3", "--bench", str(file))
    assert ran.returncode == 2
    assert "a speed of 0 tokens/s" in ran.stderr
