"""install.sh for a fresh user, for the CPU: from nothing to an answer, and away again.

Packages come from the registry, llama.cpp from a stand-in for its releases, or as the wheel that
from_source.py keeps, as compiling it takes minutes.
"""

import hashlib
import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import free_port
from tests.installers.conftest import INSTALLERS, FreshUser, kept_llama, without_compiler
from tests.installers.github import GitHub, github, own_release

NO_NETWORK = ("--index", "http://127.0.0.1:1/simple")
LINE = "  # gptoss: added by its installer\n"


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The cache of llama.cpp's wheels, with one for this CPU."""
    return kept_llama().parents[1]


@pytest.fixture
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitHub]:
    with github() as server:
        server.files = own_release(tmp_path_factory.mktemp("github"))
        yield server


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_install_upgrade_uninstall(
    user: FreshUser,
    wheels: Path,
    release: Path,
    releases: GitHub,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    (user.home / ".bashrc").write_text("alias ll='ls -l'\n")
    before = user.files()
    releases.digests = dict.fromkeys(releases.files, "0" * 64)
    cpu = ("--yes", "--backend", "cpu", "--llama-releases", releases.api)
    done = user.install(*cpu, "--wheels", wheels)
    assert done.returncode == 0, done.stderr
    assert "is not the file that was released. Run this again. Now compiled." in done.stderr
    assert "it answered, on the CPU" in done.stderr
    releases.digests = {}
    first = user.command.resolve()
    assert user.app in first.parents
    assert (user.home / ".bashrc").read_text().endswith(f'/.local/bin:$PATH"{LINE}')
    completion = user.home / ".local/share/bash-completion/completions/gptoss"
    assert "complete " in completion.read_text()

    # an upgrade to a release, of a running server, by a user without a compiler
    models, chats = user.home / ".local/share/gptoss/models", user.app.parent / "chats.sqlite3"
    models.mkdir()
    (models / "mine.gguf").write_bytes(b"weights")
    with sqlite3.connect(chats) as connection:
        connection.execute("CREATE TABLE mine (text)")
    port = str(free_port())
    assert (
        "Paris"
        in user.run(
            user.command, "run", "nano", "What is the capital of France?", GPTOSS_PORT=port
        ).stdout
    )
    user.path = without_compiler(tmp_path_factory.mktemp("bin") / "bin")
    refused = user.install("--yes", *NO_NETWORK)
    assert refused.returncode == 1
    assert user.command.resolve() == first  # and its server still runs
    assert user.run(user.command, "status", GPTOSS_PORT=port).returncode == 0
    script = release / "install.sh"
    done = user.run("/bin/sh", script, *cpu, "--wheels", user.home / "wheels")
    assert done.returncode == 0, done.stderr
    assert "Upgrade of gptoss" in done.stdout
    assert "llama.cpp's release for cpu, about 30 MB" in done.stdout
    (kept,) = json.loads((user.app / "install.json").read_text())["digests"].items()
    assert kept == (
        (name := next(iter(releases.files))),
        hashlib.sha256(releases.files[name]).hexdigest(),
    )
    second = user.command.resolve()
    assert second != first
    assert not first.exists()
    assert user.run(second, "status", GPTOSS_PORT=port).returncode == 7
    assert (user.home / ".bashrc").read_text().count(LINE) == 1
    assert not _programs_in(user.app)

    # away: the program goes, all else stays
    shutil.rmtree(user.home / "wheels")
    looked = user.install("--uninstall", "--dry-run")
    assert looked.stdout.endswith("Nothing was changed.\n")
    assert second.exists()
    assert user.install("--uninstall").returncode == 1  # without a yes
    assert second.exists()
    done = user.install("--uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    after = user.files()
    kept = {n for n in after if n not in before and "/.cache/" not in f"/{n}"}
    assert {n: after[n] for n in before} == before  # .bashrc, too
    assert kept == {
        ".local/share/gptoss/models/mine.gguf",
        ".local/share/gptoss/chats.sqlite3",
        ".local/state/gptoss/log/install.log",
        ".local/state/gptoss/log/server.log",
    }


def _programs_in(folder: Path) -> list[psutil.Process]:
    words = [(p, (p.info["cmdline"] or [""])[0]) for p in psutil.process_iter(["cmdline"])]
    return [process for process, word in words if word.startswith(str(folder))]


@pytest.mark.parametrize("arguments", [(), ("--backend", "cpu"), ("--uninstall",), ("--help",)])
def test_dry_run_changes_nothing(user: FreshUser, arguments: tuple[str, ...]) -> None:
    done = user.install("--dry-run", *arguments)
    assert done.returncode == (1 if arguments == ("--uninstall",) else 0), done.stderr
    assert list(user.home.iterdir()) == []


@pytest.mark.nightly
def test_uv_stands_in_for_a_python_that_lacks_venv(user: FreshUser) -> None:
    """The whole way up to the environment; CUDA is then refused here, before it is made."""
    lame = {"PYTHONPATH": str(_python_without_venv(user))}
    done = user.install("--yes", "--backend", "cuda", *NO_NETWORK, **lame)
    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr
    done = user.install("--yes", "--backend", "cuda", **lame)
    assert "No CUDA:" in done.stderr  # setup_app.py has the word
    uv = next(path for path in user.app.glob("uv/**/uv") if path.is_file())
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.modules['ensurepip'] = None\n"
        "import environments, steps, pathlib\n"
        "log = steps.Log(pathlib.Path('log'))\n"
        "print(environments.make_environment(log, pathlib.Path('env')))\n"
    )
    certificates = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    done = user.run(sys.executable, "-c", code, INSTALLERS, GPTOSS_UV=str(uv), **certificates)
    assert done.stdout.strip() == "env/bin/python", done.stderr
    assert user.run("env/bin/python", "-m", "pip", "--version").returncode == 0


def _python_without_venv(user: FreshUser) -> Path:
    """Debian's, before python3-venv is there."""
    folder = user.home / "fault" / "ensurepip"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('install python3-venv')")
    return folder.parent


@pytest.mark.parametrize(
    ("arguments", "message", "remedy"),
    [
        ((), "Confirmation needs a terminal", "--yes"),
        (("--yes", "--backend", "cuda"), "No CUDA: NVIDIA's driver shows no GPU", "driver"),
        (("--yes", "--from", "/nowhere"), "/nowhere does not exist", "--from takes"),
        (("--uninstall",), "gptoss is not installed", "Nothing to remove"),
        (("--yes", *NO_NETWORK), "pip failed to build", "HTTPS_PROXY"),
    ],
)
def test_failures_say_what_to_do(
    user: FreshUser, arguments: tuple[str, ...], message: str, remedy: str
) -> None:
    done = user.install(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert remedy in done.stderr.rpartition(message)[2]
    assert "Traceback" not in done.stderr
    left = {name for name in user.files() if not name.startswith(".cache/")}
    assert left <= {".local/state/gptoss/log/install.log"}
    assert not user.app.exists()


def test_another_gptoss_is_left_alone(user: FreshUser) -> None:
    user.command.parent.mkdir(parents=True)
    user.command.write_text("#!/bin/sh\n")
    done = user.install("--yes")
    assert done.returncode == 1
    assert "not from this installer" in done.stderr
    assert user.command.read_text() == "#!/bin/sh\n"
