"""`gptoss bench`, `tune` and `capacity` on nano: their output, and what their numbers mean."""

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gptoss_local.base.settings import load_settings
from gptoss_local.cli.measure import print_rows
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.machine.hardware import read_machine
from gptoss_local.machine.plan.facts import published_facts
from gptoss_local.machine.plan.hypothetical import card_of_size, imagine
from gptoss_local.machine.plan.options import plan_options
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.runner.measuring import Benchmark, Row
from tests.cli.conftest import Cli, run_cli

H100 = Path(__file__).parents[2] / "bench" / "results" / "h100-20b.json"


def check_numbers(found: dict[str, Any]) -> None:
    assert found["n_ctx"] == 2048
    assert [d["n_tokens"] for d in found["depths"]] == [128, 512]
    assert [w["n_streams"] for w in found["widths"]] == [1, 2]
    for depth in found["depths"]:
        assert depth["prefill_tok_s"] > depth["decode_tok_s"] > 1
    assert found["widths"][1]["decode_tok_s"] > 1
    assert found["plan"]["speed"]["decode_bound"] == "CPU"
    tests = [test["test"] for test in found["tests"]]
    assert tests == ["tg128", "pp128", "tg64 @ d128", "pp512", "tg64 @ d512"]
    assert all(test["avg_ts"] > test["stddev_ts"] > 0 for test in found["tests"])
    assert all(d["n_cells_cached"] >= 0 for d in found["depths"] + found["widths"])
    assert found["depths"][1]["n_cells_cached"] > 0  # of the prompt before


def check_picture(picture: Path, found: dict[str, Any], date: str) -> None:
    """Check that it has every number of the tables, and names the machine."""
    texts = [e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("text")]
    rates = [d[key] for key in ("prefill_tok_s", "decode_tok_s") for d in found["depths"]]
    for rate in (*rates, *(w["decode_tok_s"] for w in found["widths"])):
        assert (f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}") in texts
    assert "nano, 2,048 tokens of context" in texts
    below = next(text for text in texts if text and "CPU cores" in text)
    for part in ("no GPU, ", "llama-cpp-python 0.", date):
        assert part in below


def test_bench_measures_draws_and_feeds_capacity(fresh: dict[str, str], tmp_path: Path) -> None:
    """A server gives the model back first: a second copy would have the rest of the memory."""
    picture, measured = tmp_path / "bench.svg", tmp_path / "bench.json"
    run_cli(fresh, "load", "nano")
    assert run_cli(fresh, "ps", "--quiet").stdout == "nano\n"
    options = ("--ctx", "2048", "--parallel", "2", "--json", "--plot", str(picture))
    ran = run_cli(fresh, "bench", "nano", *options)
    assert run_cli(fresh, "ps", "--quiet").stdout == ""
    printed = json.loads(ran.stdout)
    assert {"machine", "versions", "date"} <= printed.keys()
    check_numbers(printed["benchmark"])
    check_picture(picture, printed["benchmark"], printed["date"])
    assert "a prompt of 512 tokens" in ran.stderr
    assert "skipping the agent: it needs 15,336 tokens of context" in ran.stderr

    measured.write_text(ran.stdout)
    ran = run_cli(fresh, "capacity", str(measured), "2", "--tokens-per-user-s", "0.1",
                  "--prompt", "100", "--answer", "20", "--first-token", "60", "--json")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert (answer["version"], answer["model"]) == (1, "nano")
    assert answer["capacity"]["n_machines"] == 1
    assert answer["capacity"]["user_tok_s"] > 0.1


def test_bench_prints_rows_of_llama_bench(cli: Cli) -> None:
    """An agent's turns read only the new result, not the conversation again."""
    ran = cli("bench", "nano", "--ctx", "5120", "--agent", "300", "--parallel", "1", "--quiet")
    lines = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert lines[:2] == [
        "| model                          |       size |     params | backend    | threads |"
        "            test |                  t/s |",
        "| ------------------------------ | ---------: | ---------: | ---------- | ------: |"
        " --------------: | -------------------: |",
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    for row in rows:
        assert row[:4] == ["gpt-oss ?B MXFP4 MoE", "109.87 MiB", "111.41 M", "CPU"]
        assert int(row[4]) >= 1
        assert re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", row[6])
    means = {row[5]: float(row[6].split()[0]) for row in rows}
    depths = [test for n in (128, 512, 2048) for test in (f"pp{n}", f"tg64 @ d{n}")]
    assert list(means) == ["tg128", *depths, "agent 300+20x200"]
    assert means["agent 300+20x200"] > means["pp2048"] / 5  # reading all again: a twelfth
    for part in ("CPU cores", "PARALLEL ANSWERS", "Expected of 4,096 tokens"):
        assert part in ran.stdout
    assert not ran.stderr.strip() or "too low" in ran.stderr


def test_rows_of_a_gpu_with_experts_in_ram(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, _ = imagine(read_machine(tmp_path), [card_of_size(8 * 2**30)], 64 * 2**30)
    options = plan_options(load_settings(kv_type="q8_0"), N_DRAFT_MAX)
    plan = make_plan(published_facts(24, 32), machine, options)
    print_rows(
        Benchmark(
            model="gpt-oss:20b",
            model_type="gpt-oss 20B MXFP4 MoE",
            model_size=12_110_000_000,
            model_n_params=20_910_000_000,
            backends="CUDA",
            tests=[Row("pp512", 4, 2000, 1.5)],
            n_ctx=32_768,
            load_s=1,
            depths=[],
            widths=[],
            plan=plan,
        )
    )
    titles, _, row = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in capsys.readouterr().out.splitlines()
    ]
    n_on_cpu = len(plan.placement.host_experts) + len(plan.placement.host_parts)
    shown = dict(zip(titles, row, strict=True))
    assert (shown["size"], shown["params"], shown["backend"]) == ("11.28 GiB", "20.91 B", "CUDA")
    assert (shown["ngl"], shown["n_ubatch"]) == ("25", str(plan.shape.n_batch))
    assert shown["n_cpu_moe"] == str(n_on_cpu)
    assert (shown["type_k"], shown["type_v"], shown["t/s"]) == ("q8_0", "q8_0", "2000.00 ± 1.50")
    assert n_on_cpu > 1


@pytest.mark.parametrize(
    ("file", "said"),
    [("bench.jpg", "bench.jpg is not a .svg or .png file"), ("none/b.SVG", "is not a folder")],
)
def test_a_picture_is_refused_before_anything_is_measured(
    cli: Cli, tmp_path: Path, file: str, said: str
) -> None:
    ran = cli("bench", "nano", "--plot", str(tmp_path / file))
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "loading" not in ran.stderr


def test_tune(fresh: dict[str, str]) -> None:
    """It unloads the model from the server and keeps its findings, which plans use."""
    run_cli(fresh, "load", "nano")
    done = run_cli(fresh, "tune", "nano", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["tuning"]
    assert found["model"] == "nano"
    assert run_cli(fresh, "ps", "--quiet").stdout == ""
    tuning = found["measured"]["tuning"]
    plan = json.loads(run_cli(fresh, "plan", "nano", "--json").stdout)
    assert plan["plan"]["n_threads_decode"] == tuning["n_threads_decode"]
    assert any("measured here" in reason for reason in plan["reasons"])
    imagined = json.loads(run_cli(fresh, "plan", "nano", "--ram", "64GiB", "--json").stdout)
    assert not any("measured here" in reason for reason in imagined["reasons"])


def test_capacity_of_another_machine() -> None:
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
)
def test_capacity_refuses(arguments: tuple[str, ...], code: int, says: str) -> None:
    ran = run_cli(dict(os.environ), "capacity", *arguments)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
