"""`gptoss bench`, on nano: its output, and that its numbers mean what it claims."""

import json
import re
from pathlib import Path
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


def test_bench_prints_json_and_draws(cli: Cli, tmp_path: Path) -> None:
    """The picture has every number of the tables, and names the machine."""
    picture = tmp_path / "bench.svg"
    ran = cli("bench", "nano", "--ctx", "1024", "--parallel", "2", "--json", "--plot", str(picture))
    found = json.loads(ran.stdout)["benchmark"]
    assert found["n_ctx"] == 1024
    assert [d["n_tokens"] for d in found["depths"]] == [128, 512]
    assert [w["n_streams"] for w in found["widths"]] == [1, 2]
    for depth in found["depths"]:
        assert depth["prefill_tok_s"] > depth["decode_tok_s"] > 1
    assert found["widths"][1]["decode_tok_s"] > 1
    assert found["plan"]["speed"]["decode_bound"] == "CPU"
    assert "a prompt of 512 tokens" in ran.stderr
    assert "skipping the agent: it needs 15,336 tokens of context" in ran.stderr
    tests = [test["test"] for test in found["tests"]]
    assert tests == ["tg128", "pp128", "tg64 @ d128", "pp512", "tg64 @ d512"]
    assert all(test["avg_ts"] > test["stddev_ts"] > 0 for test in found["tests"])
    assert {"machine", "versions", "date"} <= json.loads(ran.stdout).keys()
    texts = [e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("text")]
    rates = [d[key] for key in ("prefill_tok_s", "decode_tok_s") for d in found["depths"]]
    for rate in (*rates, *(w["decode_tok_s"] for w in found["widths"])):
        assert (f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}") in texts
    assert "nano, 1,024 tokens of context" in texts
    below = next(text for text in texts if text and "CPU cores" in text)
    assert "no GPU, " in below
    assert "llama-cpp-python 0." in below
    assert json.loads(ran.stdout)["date"] in below


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
    assert "CPU cores" in ran.stdout
    assert "PARALLEL ANSWERS" in ran.stdout
    assert "Expected of 4,096 tokens" in ran.stdout
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
    assert dict(zip(titles, row, strict=True)) == {
        "model": "gpt-oss 20B MXFP4 MoE",
        "size": "11.28 GiB",
        "params": "20.91 B",
        "backend": "CUDA",
        "ngl": "25",
        "n_cpu_moe": str(n_on_cpu),
        "n_ubatch": str(plan.shape.n_batch),
        "type_k": "q8_0",
        "type_v": "q8_0",
        "test": "pp512",
        "t/s": "2000.00 ± 1.50",
    }
    assert n_on_cpu > 1


def test_a_picture_of_another_kind_is_refused(cli: Cli) -> None:
    ran = cli("bench", "nano", "--plot", "bench.jpg")
    assert ran.returncode == 2
    assert "bench.jpg is not a .svg or .png file" in ran.stderr


def test_a_picture_without_a_folder_is_refused_before_anything_is_measured(
    cli: Cli, tmp_path: Path
) -> None:
    ran = cli("bench", "nano", "--plot", str(tmp_path / "none" / "bench.SVG"))
    assert ran.returncode == 2
    assert "is not a folder" in ran.stderr
    assert "loading" not in ran.stderr


def test_a_server_gives_the_model_back_first(fresh: dict[str, str]) -> None:
    """Next to its copy in VRAM, a second one would be measured in the rest of the memory."""
    run_cli(fresh, "load", "nano")
    assert run_cli(fresh, "ps", "--quiet").stdout == "nano\n"
    assert run_cli(fresh, "bench", "nano", "--ctx", "256").returncode == 0
    assert run_cli(fresh, "ps", "--quiet").stdout == ""
