"""`gptoss launch` with programs that only report how they were started."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.cli.launch.agents import AGENTS, ServedModel
from tests.cli.conftest import Terminal, run_cli
from tests.conftest import RunningServer, free_port, run_server

REPORT = f"""#!{sys.executable}
import json, os, sys, time
report = {{"arguments": sys.argv[1:], "environment": dict(os.environ)}}
print(json.dumps(report), flush=True)
if "wait" in sys.argv:
    try:
        print("interrupt me", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(42)
sys.exit(7)
"""


@pytest.fixture
def user(tmp_path: Path) -> dict[str, str]:
    """Environment of a user who has all the programs, and no settings."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for agent in AGENTS.values():
        (programs / agent.program).write_text(REPORT)
        (programs / agent.program).chmod(0o755)
    (tmp_path / "user").mkdir()
    root = str(Path(__file__).parents[2])
    home = {"HOME": str(tmp_path / "user"), "XDG_CONFIG_HOME": str(tmp_path / "user" / ".config")}
    return home | {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": root}


@pytest.fixture
def here(server: RunningServer, user: dict[str, str]) -> dict[str, str]:
    """The same with a server that runs."""
    return server.environment | user


def launched(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = run_cli(environment, "launch", *arguments)
    assert done.returncode == 7, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_settings_arguments_and_exit_code(here: dict[str, str], server: RunningServer) -> None:
    report = launched(here, "claude", "--model", "nano", "--", "-p", "hi", "--model", "x", "--")
    assert report["arguments"] == ["--model", "nano", "-p", "hi", "--model", "x", "--"]
    environment = report["environment"]
    assert environment["ANTHROPIC_BASE_URL"] == server.url
    assert environment["ANTHROPIC_AUTH_TOKEN"] == "gptoss"
    assert environment["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "nano"
    assert environment["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert not os.listdir(here["HOME"])  # no trace
    (loaded,) = httpx.get(f"{server.url}/api/ps", trust_env=False).json()["models"]
    assert loaded["context_length"] >= AGENTS["claude"].n_ctx == 65_536


def test_the_users_own_keys_and_proxy_are_not_used(here: dict[str, str]) -> None:
    mine = {"OPENAI_API_KEY": "sk-real", "ANTHROPIC_API_KEY": "sk-real", "GPTOSS_API_KEY": ""}
    proxy = {"https_proxy": "http://proxy:3128", "NO_PROXY": "intranet"}
    for agent in ("qwen", "claude", "gptme"):
        environment = launched(here | mine | proxy, agent, "--model", "nano")["environment"]
        used = {name: environment[name] for name in environment if name.endswith("_API_KEY")}
        assert agent == "claude" or used["OPENAI_API_KEY"] == "gptoss"
        assert agent != "claude" or used["ANTHROPIC_API_KEY"] == ""
        assert environment["NO_PROXY"] == environment["no_proxy"] == "intranet,127.0.0.1"


@pytest.mark.parametrize("agent", AGENTS)
def test_no_key_on_the_command_line_or_in_a_file(agent: str, tmp_path: Path) -> None:
    setup = AGENTS[agent].setup(ServedModel("http://127.0.0.1:1", "nano", 65_536, "s3cret"))
    assert "s3cret" not in " ".join((*setup.arguments, *setup.alone))
    assert "s3cret" not in repr(setup.file)
    variables = {**setup.environment, "GPTOSS_API_KEY": "s3cret"}
    named = repr(setup.arguments) + repr(setup.file) + repr(setup.environment)
    sent = "s3cret" in setup.environment.values() or "GPTOSS_API_KEY" in named
    assert sent == AGENTS[agent].sends_key, variables


TAKES_DATA = """
if sys.argv[-2:] == ["debug", "models"]:
    (given,) = [word for word in sys.argv if word.startswith("model_catalog_json=")]
    (model,) = json.load(open(json.loads(given.partition("=")[2])))["models"]
    sys.exit(model["slug"] != "nano" or model["apply_patch_tool_type"] != "freeform")
"""


@pytest.mark.parametrize("takes_it", [False, True])
def test_codex_gets_a_catalogue_if_its_version_takes_it(
    here: dict[str, str], tmp_path: Path, takes_it: bool
) -> None:
    if takes_it:
        first, second, rest = REPORT.split("\n", 2)
        program = f"{first}\n{second}\n{TAKES_DATA}\n{rest}"
        (tmp_path / "programs" / "codex").write_text(program)
    arguments = launched(here, "codex", "--model", "nano")["arguments"]
    assert any(word.startswith("model_catalog_json=") for word in arguments) == takes_it
    assert 'model_provider="gptoss"' in arguments


def test_a_key_reaches_the_program(nano_home: Path, user: dict[str, str]) -> None:
    with run_server(nano_home, api_key="s3cret") as server:
        environment = server.environment | user | {"GPTOSS_API_KEY": "s3cret"}
        report = launched(environment, "codex", "--model", "nano")
        assert "s3cret" not in " ".join(report["arguments"])
        assert report["environment"]["GPTOSS_API_KEY"] == "s3cret"
        printed = run_cli(environment, "launch", "copilot", "--config-only", "--model", "nano")
        assert "s3cret" not in printed.stdout + printed.stderr
        assert 'COPILOT_PROVIDER_API_KEY="$GPTOSS_API_KEY"' in printed.stdout


def test_ctrl_c_is_the_programs(here: dict[str, str], server: RunningServer) -> None:
    arguments = ("codex", "--model", "nano", "--", "wait")
    with Terminal(here, *arguments, command="launch") as terminal:
        terminal.read_until("interrupt me")
        os.killpg(terminal.process.pid, signal.SIGINT)  # as the terminal does
        assert terminal.process.wait() == 42
    assert httpx.get(server.url, trust_env=False).is_success


def test_list(here: dict[str, str]) -> None:
    done = run_cli(here, "launch", "codex", "--list")
    assert run_cli(here, "launch").stdout == done.stdout
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert next(iter(rows)) == "NAME"
    assert set(rows) == {"NAME", *AGENTS}
    assert rows["codex"].endswith("/programs/codex")
    assert "(not tried)" in rows["goose"]
    nothing = run_cli(here | {"PATH": "/nonexistent"}, "launch")
    assert "not installed: npm install -g @openai/codex" in nothing.stdout


def test_a_program_that_is_not_installed(user: dict[str, str], fresh: dict[str, str]) -> None:
    done = run_cli(fresh | user | {"PATH": "/nonexistent"}, "launch", "codex", "--model", "nano")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Codex is not installed" in done.stderr
    assert "npm install -g @openai/codex" in done.stderr
    assert run_cli(fresh, "status").returncode == 7  # nothing was started for it


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["cursor"], 2, "'cursor' is not one of 'aider', 'claude'"),
        (["codex", "--model", "nanno"], 3, "Did you mean nano?"),
        (["codex", "--modle", "nano"], 2, "no such option: --modle (Possible options: --model)"),
        (["codex", "--model", "nano", "--json"], 2, "Add --config-only or --list."),
        (["claude", "--undo"], 2, "gets them as it starts"),
    ],
)
def test_what_is_misspelt(here: dict[str, str], arguments: list[str], code: int, said: str) -> None:
    done = run_cli(here, "launch", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_config_only_prints_lines_for_a_shell(here: dict[str, str], tmp_path: Path) -> None:
    """Running them is the same as launching; nothing is started for it."""
    elsewhere = here | {"GPTOSS_PORT": str(free_port())}
    for agent in ("claude", "codex", "opencode", "goose"):
        done = run_cli(elsewhere, "launch", agent, "--config-only", "--model", "nano", "--", "a b")
        assert done.returncode == 0, done.stderr
        script = tmp_path / "lines.sh"
        script.write_text(done.stdout)
        ran = subprocess.run(["sh", script], env=here, capture_output=True, text=True)
        report = json.loads(ran.stdout)
        assert report["arguments"][-1] == "a b"
        again = run_cli(
            elsewhere, "launch", agent, "--config-only", "--json", "--model", "nano", "--", "a b"
        )
        printed = json.loads(again.stdout)
        assert printed["command"][1:] == report["arguments"]
        assert printed["environment"].items() <= report["environment"].items()
    assert run_cli(elsewhere, "status").returncode == 7


def test_less_context_than_a_program_wants(nano_home: Path, user: dict[str, str]) -> None:
    with run_server(nano_home, context_length="8192") as server:
        environment = server.environment | user | {"GPTOSS_CONTEXT_LENGTH": "8192"}
        done = run_cli(environment, "launch", "codex", "--model", "nano")
        assert "Codex works best with 65,536 tokens of context; nano has 8,192" in done.stderr
        assert "as your settings say" in done.stderr
        assert "model_context_window=8192" in json.loads(done.stdout)["arguments"]
        quiet = run_cli(environment, "launch", "llm", "--model", "nano")
        assert quiet.stderr == ""


def test_more_context_than_fits(nano_home: Path, user: dict[str, str]) -> None:
    with run_server(nano_home, "tests.cli.small_machine") as server:
        done = run_cli(server.environment | user, "launch", "codex", "--model", "nano")
    assert done.returncode == 7, done.stderr
    (n_ctx,) = re.findall(r"model_context_window=(\d+)", done.stdout)
    assert 4096 <= int(n_ctx) < 65_536
    assert f"nano has {int(n_ctx):,} here, more does not fit" in done.stderr


# Settings files


@pytest.fixture
def file(here: dict[str, str]) -> Path:
    path = Path(here["HOME"], ".pi", "agent", "models.json")
    path.parent.mkdir(parents=True)
    return path


MINE = '// mine\n{\n  "providers": {\n    "work": {"apiKey": "k"} // 漢\n  }\n}\n'


def backups(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.name}.*.bak"))


def test_a_file_is_changed_only_with_a_yes(here: dict[str, str], file: Path) -> None:
    file.write_text(MINE)
    done = run_cli(here, "launch", "pi", "--model", "nano")
    assert (done.returncode, done.stdout) == (2, "")
    assert '+    "gptoss": {' in done.stderr
    assert "no terminal to ask on" in done.stderr
    assert "--yes" in done.stderr
    assert file.read_text() == MINE
    assert not backups(file)

    file.chmod(0o640)
    report = launched(here, "pi", "--model", "nano", "--yes")
    assert report["arguments"] == ["--provider", "gptoss", "--model", "nano"]
    assert file.read_text().startswith(
        '// mine\n{\n  "providers": {\n    "work": {"apiKey": "k"}, //'
    )
    assert file.stat().st_mode & 0o777 == 0o640
    (backup,) = backups(file)
    assert backup.read_text() == MINE
    assert re.fullmatch(r"models\.json\.\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.bak", backup.name)

    changed = file.read_bytes()
    done = run_cli(here, "launch", "pi", "--model", "nano")  # no question, since nothing is left
    assert (done.returncode, done.stderr) == (7, "")
    assert file.read_bytes() == changed
    assert len(backups(file)) == 1
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name, backup.name]


@pytest.mark.parametrize(("key", "code"), [("y", 7), ("\r", 7), ("n", 1)])
def test_asked_on_a_terminal(here: dict[str, str], file: Path, key: str, code: int) -> None:
    file.write_text(MINE)
    with Terminal(here, "pi", "--model", "nano", command="launch") as terminal:
        terminal.read_until("like this? [Y/n]")
        assert '+    "gptoss": {' in terminal.screen
        terminal.type(f"{key}\r")
        terminal.read_until("nothing was changed" if code == 1 else '"arguments"')
        assert terminal.process.wait() == code
    assert (file.read_text() == MINE) == (code == 1)


@pytest.mark.parametrize("agent", [name for name, agent in AGENTS.items() if agent.file])
@pytest.mark.parametrize("has_file", [False, True])
def test_undo_puts_back_what_was_there(here: dict[str, str], agent: str, has_file: bool) -> None:
    """Also after two starts that changed the file; a new file is its owner's alone."""
    said = run_cli(here, "launch", agent, "--model", "nano", "--config-only", "--json", "--yes")
    path = Path(json.loads(said.stdout)["file"])
    mine = "[]\n" if path.read_text().startswith("[") else '{"mine": [1]}\n'
    assert path.stat().st_mode & 0o077 == 0
    assert [backup.read_bytes() for backup in backups(path)] == [b""]
    assert run_cli(here, "launch", agent, "--undo", "--yes").returncode == 0
    assert not path.exists()
    if has_file:
        path.write_text(mine)
    launched(here, agent, "--model", "nano", "--yes")
    path.write_text(path.read_text().replace("nano", "other"))  # so that the next one changes it
    launched(here, agent, "--model", "nano", "--yes")
    assert "nano" in path.read_text() or agent == "vscode"
    assert '"mine"' in path.read_text() or not has_file or mine == "[]\n"
    refused = run_cli(here, "launch", agent, "--undo")
    assert refused.returncode == 2
    assert "gptoss" in refused.stderr.lower()
    assert run_cli(here, "launch", agent, "--undo", "--yes").returncode == 0
    assert (path.read_text() if path.exists() else None) == (mine if has_file else None)
    assert not backups(path)
    again = run_cli(here, "launch", agent, "--undo", "--yes")
    assert again.returncode == 2
    assert "nothing here has changed it" in again.stderr


@pytest.mark.parametrize(
    ("before", "code"),
    [
        (b'{"providers": []}', 2),
        (b'\xff{"a": 1}', 2),
        *((text, 7) for text in (b"\xef\xbb\xbf{\r\n}\r\n", b'{\r\n  "a": 1\r\n}\r\n', b"")),
    ],
)
def test_bytes_of_a_file(here: dict[str, str], file: Path, before: bytes, code: int) -> None:
    """Ends of lines stay as they are, as does a file that cannot be read."""
    file.write_bytes(before)
    done = run_cli(here, "launch", "pi", "--model", "nano", "--yes")
    assert done.returncode == code
    after = file.read_bytes()
    if code == 2:
        assert str(file) in done.stderr
        assert "Traceback" not in done.stderr
        assert (after, backups(file)) == (before, [])
    else:
        assert after.startswith(before[:3].rstrip(b"}"))
        assert after.count(b"\n") == (after.count(b"\r\n") or after.count(b"\n"))
        assert (b"\r\n" in after) == (b"\r\n" in before)
