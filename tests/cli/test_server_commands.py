"""status, logs and the progress of `load`."""

import json
import subprocess
import sys
from pathlib import Path

import psutil

from gptoss_local.base.settings import Settings
from tests.cli.conftest import Cli, Terminal, run_cli
from tests.conftest import RunningServer, engines_of, wait_until


def test_status(cli: Cli, server: RunningServer) -> None:
    cli("load", "nano")
    found = json.loads(cli("status", "--json").stdout)
    assert (found["running"], found["pid"]) == (True, server.process.pid)
    assert found["url"] == server.url
    assert [model["name"] for model in found["models"]] == ["nano"]
    shown = cli("status").stdout
    assert f"running, {server.url}\n" in shown
    assert "models          nano\n" in shown


def test_logs_and_status_before_and_after_the_first_start(fresh: dict[str, str]) -> None:
    done = run_cli(fresh, "status", "--json")
    assert (done.returncode, json.loads(done.stdout)["running"]) == (7, False)
    assert "not running" in run_cli(fresh, "status").stdout
    nothing = run_cli(fresh, "logs")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no log yet" in nothing.stderr
    settings = Settings(home=Path(fresh["GPTOSS_HOME"]), port=int(fresh["GPTOSS_PORT"]))
    settings.server_log.parent.mkdir()
    settings.server_log.write_bytes(b"old\n" * 2_000_000)  # a large log makes room
    run_cli(fresh, "load", "nano")
    assert settings.server_log.stat().st_size < 100_000
    assert settings.server_log.with_name("server.log.1").stat().st_size == 8_000_000
    assert "listening on" in run_cli(fresh, "logs").stdout
    (last,) = run_cli(fresh, "logs", "-n", "1").stdout.splitlines()
    assert "loaded nano" in last
    assert json.loads(run_cli(fresh, "logs", "-n", "1", "--json").stdout)["line"] == last


def test_logs_follow_a_log_that_is_replaced(fresh: dict[str, str]) -> None:
    log = Path(fresh["GPTOSS_HOME"]) / "log" / "server.log"
    command = [sys.executable, "-m", "gptoss_local", "logs", "-f", "-n", "1"]
    with subprocess.Popen(command, env=fresh, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        log.parent.mkdir(parents=True)
        with log.open("a") as file:
            file.write("one\ntwo\nthr")
            file.flush()
            assert follower.stdout.readline() in ("one\n", "two\n", "thr\n")
            file.write("ee\nfour\n")
        lines = []
        while not lines or lines[-1] != "four\n":
            lines.append(follower.stdout.readline())
        log.replace(log.with_name("server.log.1"))
        log.write_text("five\n")
        assert follower.stdout.readline() == "five\n"
        follower.terminate()


def test_load_tells_how_far_it_is(fresh: dict[str, str]) -> None:
    done = run_cli(fresh, "load", "nano", "--json", "--ctx", "4096")
    *reports, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert {report["event"] for report in reports} == {"progress"}
    assert reports[-1]["completed_bytes"] == reports[-1]["total_bytes"] > 10**6
    assert (last["event"], last["model"]["name"]) == ("done", "nano")
    assert json.loads(run_cli(fresh, "ps", "--json").stdout)["loading"] == []
    run_cli(fresh, "stop", "nano")
    piped = run_cli(fresh, "load", "nano").stderr.splitlines()
    assert piped[-2].startswith("loading nano: 100 %")
    assert piped[-1].startswith("nano is loaded, 32,768 tokens")
    run_cli(fresh, "stop", "nano")
    with Terminal(fresh, "nano", "What is 17 + 25?") as terminal:
        server = psutil.Process(json.loads(run_cli(fresh, "status", "--json").stdout)["pid"])
        wait_until(lambda: engines_of(server))
        (engine,) = engines_of(server)
        engine.suspend()
        shown = run_cli(fresh, "ps").stdout
        assert "nano" in shown
        assert "loading" in shown or "starting" in shown or "waiting" in shown
        assert "\nnano " in run_cli(fresh, "status").stdout
        engine.resume()
        terminal.read_until("42")
        assert "loading nano" in terminal.screen
        assert "━" in terminal.screen
