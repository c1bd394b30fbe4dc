"""`gptoss bench`, on nano: what it prints, and that the numbers are of what it says."""

import json
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from xml.etree import ElementTree

from tests.cli.conftest import Cli, run_cli


def test_bench_prints_json_and_draws(cli: Cli, tmp_path: Path) -> None:
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
    lines = [e for e in ElementTree.parse(picture).iter() if e.tag.endswith("polyline")]
    assert [len(line.attrib["points"].split()) for line in lines] == [2, 2]


def test_bench_prints_tables(cli: Cli) -> None:
    ran = cli("bench", "nano", "--ctx", "512", "--parallel", "1", "--quiet")
    titles = [line for line in ran.stdout.splitlines() if line.startswith(("PROMPT", "ANSWERS"))]
    assert len(titles) == 2
    assert "Expected of 4,096 tokens" in ran.stdout
    assert "a prompt of" not in ran.stderr


def test_a_picture_of_another_kind_is_refused(cli: Cli) -> None:
    ran = cli("bench", "nano", "--plot", "bench.png")
    assert ran.returncode == 2
    assert "bench.png is no .svg file" in ran.stderr


def test_a_picture_without_a_folder_is_refused_before_anything_is_measured(
    cli: Cli, tmp_path: Path
) -> None:
    ran = cli("bench", "nano", "--plot", str(tmp_path / "none" / "bench.SVG"))
    assert ran.returncode == 2
    assert "is no folder" in ran.stderr
    assert "loading" not in ran.stderr


def test_what_has_no_room_in_the_context_is_left_out(cli: Cli) -> None:
    """Answers that wait for others are not at once, and their speed would be none."""
    ran = cli("bench", "nano", "--ctx", "768", "--parallel", "4", "--json", "--quiet")
    assert [w["n_streams"] for w in json.loads(ran.stdout)["benchmark"]["widths"]] == [1, 2]
    ran = cli("bench", "nano", "--ctx", "256", "--json", "--quiet")
    found = json.loads(ran.stdout)["benchmark"]
    assert [d["n_tokens"] for d in found["depths"]] == [128]
    assert found["widths"] == []
    assert "AT ONCE" not in cli("bench", "nano", "--ctx", "256", "--quiet").stdout


def test_a_server_gives_the_model_back_first(fresh: dict[str, str]) -> None:
    """Beside its copy in VRAM, another one would be planned and measured in what is left."""
    run_cli(fresh, "load", "nano")
    assert run_cli(fresh, "ps", "--quiet").stdout == "nano\n"
    assert run_cli(fresh, "bench", "nano", "--ctx", "256").returncode == 0
    assert run_cli(fresh, "ps", "--quiet").stdout == ""


def test_another_program_at_the_address_is_no_matter(fresh: dict[str, str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        environment = fresh | {"GPTOSS_PORT": str(other.server_port)}
        ran = run_cli(environment, "bench", "nano", "--ctx", "256", "--parallel", "1")
        other.shutdown()
    assert ran.returncode == 0, ran.stderr
