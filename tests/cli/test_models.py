"""Models come, get names and defaults, and go: pull, import, create, cp, rm, load, gc, verify."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptoss_local.base.errors import UsageError
from gptoss_local.cli._modelfile import parse_modelfile
from gptoss_local.models.catalog import catalog
from gptoss_local.models.store import ModelDefaults, ModelEntry, render_modelfile
from tests.cli.conftest import Cli, Terminal, run_cli
from tests.conftest import RunningServer
from tests.convert.tiny import write_tiny
from tests.hub.conftest import no_account  # noqa: F401
from tests.hub.server import Fault, HubServer, run_hub
from tests.pulling.test_pull import read_folder
from tests.store.test_elsewhere import ollama_model

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
SHARDS = [f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with run_hub() as server:
        files = read_folder(write_tiny(tmp_path / "gpt-oss-20b", n_shards=len(SHARDS)))
        server.add("openai/gpt-oss-20b", files)
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def environment(hub: HubServer, fresh: dict[str, str]) -> dict[str, str]:
    """A user without a model and without a running server, near a hub."""
    return fresh | {"HF_ENDPOINT": hub.endpoint, "COLUMNS": "120"}


def listed(environment: dict[str, str]) -> dict[str, bool]:
    """Return the names, and whether the model lies elsewhere."""
    models = json.loads(run_cli(environment, "ls", "--json").stdout)["models"]
    return {model["name"]: model["in_place"] for model in models}


def test_pull_is_interrupted_and_continued(hub: HubServer, home_server: RunningServer) -> None:
    hub.strike(SHARDS[-1], Fault(stall_after=100))
    command = [sys.executable, "-m", "gptoss_local", "pull", "20b"]
    pull = subprocess.Popen(command, env=home_server.environment, stderr=subprocess.PIPE, text=True)
    assert pull.stderr is not None
    while "pull: " not in pull.stderr.readline():
        pass
    pull.send_signal(signal.SIGINT)
    _, said = pull.communicate()
    assert pull.returncode == 130
    assert said.endswith("Run the same command again to resume.\n")
    hub.heal()
    sent = dict(hub.sent)
    with Terminal(home_server, "20b", command="pull") as again:
        again.read_until("is ready: gptoss run 20b")
        assert again.process.wait() == 0
    fetched = {name for name in SHARDS if hub.sent.get(name, 0) != sent.get(name, 0)}
    assert SHARDS[-1] in fetched
    assert len(fetched) < len(SHARDS)


def test_create_show_copy_and_remove(
    home_cli: Cli, home_server: RunningServer, tmp_path: Path
) -> None:
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text('FROM nano\nSYSTEM """You are\nPete."""\nPARAMETER temperature 0.5\n')
    misspelt = home_cli("create", "pete", "--from", "nano", "-p", "temprature=1")
    assert "note: ignored: parameters.temprature" in misspelt.stderr
    done = home_cli("create", "pete", "-f", str(modelfile), "--parameter", "num_predict=5",
                    "-q", "MXFP4")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ignored" not in done.stderr
    shown = json.loads(home_cli("show", "pete", "--json").stdout)["defaults"]
    assert shown["system"] == "You are\nPete."
    assert shown["parameters"] == {"temperature": 0.5, "num_predict": 5}
    text = home_cli("show", "pete").stdout
    for words in ("made from       nano", "You are\n                Pete.", "temperature 0.5"):
        assert words in text
    for part, words in (("parameters", "temperature  "), ("system", "You are\nPete.\n"),
                        ("license", "No license was"), ("template", "harmony")):  # fmt: skip
        assert words in home_cli("show", "pete", f"--{part}").stdout
    assert home_cli("show", "pete", "--system", "--license").returncode == 2
    answer = home_cli("run", "pete", "hi", "--json").stdout.splitlines()
    assert json.loads(answer[-1])["eval_count"] == 5
    assert home_cli("cp", "pete", "pete:2").returncode == 0
    user = home_server.environment
    assert set(listed(user)) == {"pete", "pete:2", "nano"}
    assert home_cli("rm", "-y", "pete", "nope").returncode == 3  # before the first one goes
    assert home_cli("rm", "-y", "pete", "nano").returncode == 2
    refused = home_cli("rm", "pete")
    assert (refused.returncode, "gptoss rm -y pete" in refused.stderr) == (2, True)
    for answer, code, left in (("n", 1, {"pete", "pete:2", "nano"}), ("y", 0, {"pete", "nano"})):
        with Terminal(home_server, "pete:2", command="rm") as terminal:
            terminal.read_until("Delete pete:2?")
            terminal.type(f"{answer}\n")
            assert terminal.process.wait() == code
        assert set(listed(user)) == left
    assert home_cli("rm", "-y", "pete").stderr == "deleted pete\n"
    assert set(listed(user)) == {"nano"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--from MODEL, or -f FILE"),
        (["-f", "/nonexistent"], "cannot read /nonexistent"),
        (["--from", "nano", "--parameter", "x"], "there is no ="),
        (["--from", "nano", "--parameter", "temperature=warm"], "temperature"),
        (["--from", "nano", "-q", "q4_K_M"], "nano is MXFP4, and is not rounded again"),
        (["--from", "nano", "--quantize", "Q5_1"], "gptoss convert DIR OUT.gguf --dense q5_1"),
    ],
)
def test_create_refuses(cli: Cli, arguments: list[str], text: str) -> None:
    done = cli("create", "x", *arguments)
    assert done.returncode == 2
    assert text in done.stderr


def test_load_and_stop_all(home_cli: Cli) -> None:
    *_, last = home_cli("load", "nano", "--ctx", "40000", "--json").stdout.splitlines()
    assert json.loads(last)["model"]["context_length"] >= 40_000
    assert "is loaded" in home_cli("load", "gpt-oss-nano", "--keep-alive", "-1").stderr
    assert home_cli("ps").stdout.splitlines()[1].endswith("Forever")
    assert home_cli("load", "nano", "--keep-alive", "soon").returncode == 2
    assert home_cli("stop", "nano", "--all").returncode == 2
    assert home_cli("stop", "--all").stderr == "unloaded nano\n"
    assert json.loads(home_cli("status", "--json").stdout)["models"] == []


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
License "GPL
or "other"s"
SYSTEM """he "is""" here"""
'''
    assert parse_modelfile(text) == {
        "from": "nano",
        "parameters": {"temperature": 0.2, "stop": ["a b", "7"], "num_ctx": 4096},
        "system": 'he "is""" here',
        "messages": [
            {"role": "user", "content": "Hello there"},
            {"role": "assistant", "content": "Two\nlines"},
        ],
        "license": ["MIT", 'GPL\nor "other"s'],
    }


_WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_ODD = st.sampled_from(['"""', '"', "\\", "\n", "\r", "\u2028", "\f", "\x85", " ", "#", "FROM x"])
_TEXTS = st.lists(_WORDS | _ODD, min_size=1).map("".join).filter(bool)


@pytest.mark.quick
@settings(max_examples=150, deadline=None)
@given(_TEXTS, st.lists(_TEXTS), st.lists(_TEXTS), st.lists(_TEXTS, min_size=1))
def test_any_text_survives_show_and_create(
    system: str, contents: list[str], licenses: list[str], stops: list[str]
) -> None:
    messages: list[dict[str, str]] = [{"role": "user", "content": text} for text in contents]
    messages.append({"role": "assistant", "thinking": system, "content": ""})
    told = ModelDefaults(
        parent="nano",
        system=system,
        messages=tuple(messages),
        license=tuple(licenses),
        parameters={"stop": stops, "top_p": 0.5},
    )
    body = parse_modelfile(render_modelfile(ModelEntry("x", None, defaults=told)))
    read = body.pop("license", [])
    assert ([read] if isinstance(read, str) else read) == licenses
    assert body == {
        "from": "nano",
        "system": system,
        "messages": messages,
        "parameters": told.parameters,
    }


@pytest.mark.quick
def test_lines_of_ollama_that_are_not_needed(capsys: pytest.CaptureFixture[str]) -> None:
    text = 'FROM nano\nTEMPLATE """{{ if }}\n"""\nRENDERER harmony\nPARSER harmony\nREQUIRES 0.14.0'
    assert parse_modelfile(text) == {"from": "nano"}
    notes = capsys.readouterr().err
    assert "line 2: TEMPLATE is not used: gpt-oss's own format is built in. Leave the" in notes
    assert [line.split(": ")[1].split()[0] for line in notes.splitlines()] == [
        *("TEMPLATE", "RENDERER", "PARSER", "REQUIRES")
    ]


def test_a_line_that_replaces_another_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = "FROM nano\nSYSTEM a\nPARAMETER seed 1\nPARAMETER stop x\nPARAMETER stop y\nSYSTEM b"
    made = parse_modelfile(f"{text}\nPARAMETER seed 2")
    assert (made["system"], made["parameters"]) == ("b", {"seed": 2, "stop": ["x", "y"]})
    notes = capsys.readouterr().err.splitlines()
    assert [note.partition(":")[0] for note in notes] == ["Modelfile, line 6", "Modelfile, line 7"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('FROM nano\nSYSTEM """x', 'line 2: """ is never closed'),
        ("FROM nano\n\nPARAMETER x", "line 3: PARAMETER needs two words"),
        ("FROM nano\nEXECUTE x", "line 2: EXECUTE is unknown"),
        ("# Mine\nFROM", "line 2: FROM needs a value"),
        ("SYSTEM x", "no FROM line"),
        ("FROM nano\nFROM other", "line 2: a second FROM"),
        ('FROM nano\nSYSTEM """a""" b\n\nMESSAGE user c', 'line 2: """ is never closed'),
        ('FROM nano\nLICENSE "x', 'line 2: " is never closed'),
        ("FROM nano\nPARAMETER temperature NaN", "line 2: temperature must be a number, not NaN"),
        ("FROM nano\nPARAMETER top_p nan", "line 2: top_p must be a number of at least 0"),
        ("FROM nano\nPARAMETER min_p inf", "min_p must be a number of at most 1, not 'inf'"),
        ("FROM nano\nPARAMETER temperature -1", "temperature must be a number of at least 0"),
        ("FROM nano\nPARAMETER num_predict 9e9", "num_predict must be"),
        ("FROM nano\nPARAMETER num_ctx -5", "num_ctx must be a whole number of at least 1, not -5"),
        ('FROM nano\nPARAMETER num_ctx "-1"', "num_ctx must be a whole number of at least 1"),
        ("FROM nano\nPARAMETER num_ctx 99999999999", "not 99999999999"),
        ('FROM nano\nPARAMETER stop ""', "line 2: stop"),
    ],
)
def test_modelfile_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_modelfile(text)
    assert message in caught.value.message


def test_a_modelfile_of_the_server(
    home_cli: Cli, home_server: RunningServer, tmp_path: Path
) -> None:
    arguments = (
        "--system",
        'Say """no"""\nat\u2028all.',
        "--parameter",
        "stop=x y",
        "--parameter",
        "top_k=3",
    )
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
    for encoding in ("utf-8-sig", "utf-16"):  # as Windows writes
        (tmp_path / "Modelfile").write_text("FROM nano\nSYSTEM Grüß höflich.\n", encoding=encoding)
        done = home_cli("create", "windows", "-f", str(tmp_path / "Modelfile"))
        assert (done.returncode, done.stderr) == (0, "created windows: gptoss run windows\n")
    folder = write_tiny(tmp_path / "tuned", n_shards=2)
    for base in ("./tuned", str(folder), "tuned/model-00001-of-00002.safetensors"):
        (tmp_path / "Modelfile").write_text(f"FROM {base}\n")
        done = home_cli("create", "tuned", "-f", str(tmp_path / "Modelfile"))
        assert f"{base} is a checkpoint" in done.stderr
        assert f"gptoss convert {folder} model.gguf" in done.stderr


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


def test_catalogue_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "models.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert [model.name for model in catalog()][5:] == ["coder:20b", "my-tune", "ready"]


def test_the_first_model_is_asked_for(environment: dict[str, str], hub: HubServer) -> None:
    with Terminal(environment) as asked:
        asked.read_until("Which one?")
        assert re.search(r"1 +gpt-oss:20b +13\.8 GB +\S", asked.screen), asked.screen
        asked.type("1\r")
        asked.read_until("gptoss: ")  # the tiny model of this hub can be pulled, not loaded
    assert "gpt-oss:20b" in listed(environment)


@pytest.mark.parametrize(
    "command", [("run", "20b", "hi"), ("launch", "codex", "--model", "20b")], ids=" ".join
)
def test_a_model_that_is_named_is_offered(
    environment: dict[str, str], hub: HubServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "codex").touch(0o755)
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    with Terminal(environment, *command[1:], command=command[0], PATH=path) as asked:
        asked.read_until("Download it (13.8 GB)? [Y/n]")
        asked.type("n\r")
        assert asked.process.wait() == 3
    assert hub.requests == []


def test_what_ollama_has_is_offered(
    environment: dict[str, str], tmp_path: Path, nano_gguf: Path, hub: HubServer
) -> None:
    ollama = tmp_path / "ollama"
    blob = ollama_model(ollama, "registry.ollama.ai/library/gpt-oss/20b", nano_gguf)
    environment |= {"OLLAMA_MODELS": str(ollama)}
    with Terminal(environment, "20b", command="pull") as asked:
        asked.read_until("Ollama has gpt-oss:20b on this disk")
        asked.type("y\r")
        asked.read_until("is on this machine already")
        assert asked.process.wait() == 0
    assert hub.requests == []
    assert listed(environment)["gpt-oss:20b"]
    assert run_cli(environment, "rm", "-y", "20b").returncode == 0
    assert blob.is_file()
    told = run_cli(environment, "pull", "20b")
    assert "to use that: gptoss import ollama/gpt-oss:20b gpt-oss:20b" in told.stderr
    assert hub.sent
    found = json.loads(run_cli(environment, "import", "--json").stdout)["models"]
    assert [(each["name"], each["problem"]) for each in found] == [("ollama/gpt-oss:20b", "")]
    assert run_cli(environment, "import", "ollama/gpt-oss:20").returncode == 3


def test_damage_is_found_and_named(
    environment: dict[str, str], tmp_path: Path, nano_gguf: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(nano_gguf.read_bytes())
    blob = ollama_model(tmp_path / "ollama", "registry.ollama.ai/library/tune/1", copy)
    environment |= {"OLLAMA_MODELS": str(tmp_path / "ollama")}
    assert run_cli(environment, "import", "ollama/tune:1", "tuned").returncode == 0
    whole = run_cli(environment, "verify", "--all").stdout
    assert re.search(r"^tuned .*whole: the sha256 is right$", whole, re.MULTILINE), whole
    assert re.search(r"^nano .*whole: all sums are right$", whole, re.MULTILINE)
    with blob.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    done = run_cli(environment, "verify", "--all", "--json")
    assert done.returncode == 11
    assert list(json.loads(done.stdout)["damaged"]) == ["tuned"]
    assert "1 of 2 models are damaged" in done.stderr
    assert str(blob) in done.stderr
    one = run_cli(environment, "verify", "tuned")
    assert (one.returncode, str(blob) in one.stderr) == (11, True)
    for wrong, code in ((["verify"], 2), (["verify", "--all", "nano"], 2), (["verify", "no"], 3)):
        assert run_cli(environment, *wrong).returncode == code


def test_gc(environment: dict[str, str]) -> None:
    models = Path(environment["GPTOSS_HOME"]) / "models"
    (models / "x.gguf.download").mkdir(parents=True)
    for name, n_bytes in (("y.1234.part", 3000), ("x.gguf.download/shard", 5000)):
        (models / name).write_bytes(bytes(n_bytes))
        os.utime(models / name, (1000, 1000))
    os.utime(models / "x.gguf.download", (1000, 1000))
    dry = run_cli(environment, "gc", "--dry-run")
    assert re.search(r"^y\.1234\.part +3\.0 kB +part$", dry.stdout, re.MULTILINE)
    assert "3.0 kB could be freed" in dry.stderr
    assert "5.0 kB belong to interrupted pulls" in dry.stderr
    done = json.loads(run_cli(environment, "gc", "--json").stdout)
    assert (done["freed_bytes"], len(done["kept"])) == (3000, 1)
    assert [path.name for path in models.iterdir()] == ["x.gguf.download"]
    run_cli(environment, "gc", "--interrupted")
    assert list(models.iterdir()) == []
