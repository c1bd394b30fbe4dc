"""Models come, get names and defaults, and go: pull, create, cp, rm, load, stop."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.cli._modelfile import parse_modelfile
from tests.cli.conftest import Cli, Terminal, run_cli
from tests.conftest import RunningServer, run_server
from tests.convert.tiny import write_tiny
from tests.hub.conftest import no_account  # noqa: F401
from tests.hub.server import Fault, HubServer, run_hub
from tests.pulling.test_pull import read_folder

N_SHARDS = 3
LAST = f"model-{N_SHARDS:05d}-of-{N_SHARDS:05d}.safetensors"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with run_hub() as server:
        files = write_tiny(tmp_path / "gpt-oss-20b", n_shards=N_SHARDS)
        server.add("openai/gpt-oss-20b", read_folder(files))
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def listed(cli: Cli) -> list[str]:
    return [model["name"] for model in json.loads(cli("ls", "--json").stdout)["models"]]


def test_pull_is_interrupted_and_continued(hub: HubServer, home_server: RunningServer) -> None:
    hub.strike(LAST, Fault(stall_after=100))
    pull = subprocess.Popen(
        [sys.executable, "-m", "gptoss_local", "pull", "20b"],
        env=home_server.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert pull.stderr is not None
    while "pull: " not in pull.stderr.readline():
        pass
    pull.send_signal(signal.SIGINT)
    _, said = pull.communicate()
    assert pull.returncode == 130
    assert said.endswith("Run the same command again to resume.\n")
    hub.heal()
    sent = dict(hub.sent)
    again = Terminal(home_server, "20b", command="pull")
    try:
        again.read_until("is ready: gptoss run 20b")
        assert again.process.wait() == 0
    finally:
        again.close()
    shards = [f"model-{i:05d}-of-{N_SHARDS:05d}.safetensors" for i in range(1, N_SHARDS + 1)]
    fetched = {name for name in shards if hub.sent.get(name, 0) != sent.get(name, 0)}
    assert LAST in fetched
    assert len(fetched) < N_SHARDS


def test_create_show_copy_and_remove(home_cli: Cli, tmp_path: Path) -> None:
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text('FROM nano\nSYSTEM """You are\nPete."""\nPARAMETER temperature 0.5\n')
    done = home_cli("create", "pete", "-f", str(modelfile), "--parameter", "num_predict=5")
    assert done.returncode == 0, done.stderr
    shown = json.loads(home_cli("show", "pete", "--json").stdout)["defaults"]
    assert shown["system"] == "You are\nPete."
    assert shown["parameters"] == {"temperature": 0.5, "num_predict": 5}
    text = home_cli("show", "pete").stdout
    for words in ("made from       nano", "You are\n                Pete.", "temperature 0.5"):
        assert words in text
    answer = home_cli("run", "pete", "hi", "--json").stdout.splitlines()
    assert json.loads(answer[-1])["eval_count"] == 5
    assert home_cli("cp", "pete", "pete:2").returncode == 0
    assert set(listed(home_cli)) == {"pete", "pete:2", "nano"}
    assert home_cli("rm", "-y", "pete", "pete:2").stderr == "deleted pete\ndeleted pete:2\n"
    assert listed(home_cli) == ["nano"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_create_reads_what_windows_writes(home_cli: Cli, tmp_path: Path, encoding: str) -> None:
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text("FROM nano\nSYSTEM Grüß höflich.\n", encoding=encoding)
    done = home_cli("create", "windows", "-f", str(modelfile))
    assert (done.returncode, done.stderr) == (0, "created windows: gptoss run windows\n")
    assert home_cli("rm", "-y", "windows").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--from MODEL, or -f FILE"),
        (["-f", "/nonexistent"], "cannot read /nonexistent"),
        (["--from", "nano", "--parameter", "x"], "there is no ="),
        (["--from", "nano", "--parameter", "temperature=warm"], "temperature"),
    ],
)
def test_create_refuses(cli: Cli, arguments: list[str], text: str) -> None:
    done = cli("create", "x", *arguments)
    assert done.returncode == 2
    assert text in done.stderr


def test_rm_checks_all_before_the_first_goes(home_cli: Cli) -> None:
    home_cli("cp", "nano", "a")
    assert home_cli("rm", "-y", "a", "nope").returncode == 3
    assert home_cli("rm", "-y", "a", "nano").returncode == 2
    refused = home_cli("rm", "a")
    assert refused.returncode == 2
    assert "gptoss rm -y a" in refused.stderr
    assert listed(home_cli) == ["a", "nano"]


def test_rm_asks_on_a_terminal(home_cli: Cli, home_server: RunningServer) -> None:
    home_cli("cp", "nano", "a")
    for answer, code, left in (("n", 1, ["a", "nano"]), ("y", 0, ["nano"])):
        terminal = Terminal(home_server, "a", command="rm")
        try:
            terminal.read_until("Delete a?")
            terminal.type(f"{answer}\n")
            assert terminal.process.wait() == code
        finally:
            terminal.close()
        assert listed(home_cli) == left


def test_load_and_stop_all(nano_home: Path) -> None:
    with run_server(nano_home, context_length="4096") as server:

        def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
            return run_cli(server.environment, *arguments)

        *_, last = cli("load", "nano", "--ctx", "9000", "--json").stdout.splitlines()
        loaded = json.loads(last)["model"]
        assert loaded["context_length"] >= 9000
        assert "is loaded" in cli("load", "gpt-oss-nano", "--keep-alive", "-1").stderr
        assert cli("ps").stdout.splitlines()[1].endswith("Forever")
        assert cli("load", "nano", "--keep-alive", "soon").returncode == 2
        assert cli("stop", "nano", "--all").returncode == 2
        assert cli("stop", "--all").stderr == "unloaded nano\n"
        assert json.loads(cli("status", "--json").stdout)["models"] == []


@pytest.mark.quick
def test_modelfile() -> None:
    text = '''
# comment
from nano
PARAMETER temperature 0.2
parameter stop "a b"
PARAMETER stop 7
PARAMETER num_ctx 4096
SYSTEM """
You "are"
# no comment
"""
MESSAGE user Hello there
MESSAGE assistant """Two
lines"""
LICENSE "MIT"
'''
    assert parse_modelfile(text) == {
        "from": "nano",
        "parameters": {"temperature": 0.2, "stop": ["a b", "7"], "num_ctx": 4096},
        "system": '\nYou "are"\n# no comment\n',
        "messages": [
            {"role": "user", "content": "Hello there"},
            {"role": "assistant", "content": "Two\nlines"},
        ],
        "license": "MIT",
    }


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('FROM nano\nSYSTEM """x', 'line 2: """ is never closed'),
        ("FROM nano\n\nPARAMETER x", "line 3: PARAMETER needs two words"),
        ("FROM nano\nEXECUTE x", "line 2: EXECUTE is unknown"),
        ("SYSTEM x", "no FROM line"),
        ("FROM nano\nFROM other", "line 2: a second FROM"),
        ("FROM nano\nPARAMETER temperature NaN", "temperature is NaN, which is not a number"),
        ("FROM nano\nPARAMETER num_ctx -5", "num_ctx is -5"),
        ("FROM nano\nPARAMETER num_ctx 99999999999", "num_ctx is 99999999999"),
    ],
)
def test_modelfile_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_modelfile(text)
    assert message in caught.value.message


def test_a_modelfile_of_the_server(home_cli: Cli, home_server: RunningServer) -> None:
    arguments = ("--system", 'Say "no".', "--parameter", "stop=x y", "--parameter", "top_k=3")
    assert home_cli("create", "first", "--from", "nano", *arguments).returncode == 0
    url = f"{home_server.url}/api/show"
    shown = httpx.post(url, json={"model": "first"}, trust_env=False).json()["modelfile"]
    assert home_cli("show", "first", "--modelfile").stdout == shown
    assert home_cli("create", "second", "-f", "-", stdin=shown).returncode == 0
    first, second = (
        json.loads(home_cli("show", name, "--json").stdout)["defaults"]
        for name in ("first", "second")
    )
    assert first == second


@pytest.mark.parametrize("name", ["mine", "taken"])
def test_show_and_plan_of_a_file_only_read(
    fresh: dict[str, str], tmp_path: Path, nano_gguf: Path, name: str
) -> None:
    """It has no name by that, and may be called like another model."""
    models = Path(fresh["GPTOSS_HOME"]) / "models"
    models.mkdir()
    (models / "taken.gguf").write_bytes(nano_gguf.read_bytes())
    file = tmp_path / f"{name}.gguf"
    file.hardlink_to(nano_gguf)
    before = sorted(models.rglob("*"))
    shown = json.loads(run_cli(fresh, "show", str(file), "--json").stdout)
    assert (shown["name"], shown["path"]) == (str(file), str(file))
    planned = run_cli(fresh, "plan", str(file))
    assert planned.stdout.startswith(f"{file}: "), planned.stderr
    assert f"\nFROM {file}\n" in run_cli(fresh, "show", str(file), "--modelfile").stdout
    for path, code in ((tmp_path / "no.gguf", 3), (tmp_path, 2)):
        assert run_cli(fresh, "show", str(path)).returncode == code
        assert run_cli(fresh, "plan", str(path)).returncode == code
    assert sorted(models.rglob("*")) == before
