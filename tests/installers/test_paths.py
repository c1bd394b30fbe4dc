"""pip, pipx and uv with a release's files, in environments of their own: from nothing to an answer.

Packages come from the registry, llama.cpp's wheel from the cache of from_source.py: pip would
compile it.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import steps

from tests.conftest import free_port
from tests.installers.conftest import LLAMA, FreshUser, kept_llama, without_compiler
from tests.installers.github import github, own_release

TOOLS = Path(sys.executable).parent
CERTIFICATES = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
PACKAGES = ("whl", "tar.gz")
PYTHONS = [f"3.{minor}" for minor in range(11, 15)]


@dataclass
class Person(FreshUser):
    """A fresh user without a compiler, and the port of their server."""

    port: str = ""

    def install_by(self, *command: str | Path) -> None:
        done = self.run(*command, **CERTIFICATES, UV_PYTHON_DOWNLOADS="never")
        assert done.returncode == 0, done.stderr

    def check(self, gptoss: Path) -> None:
        """Ask nano, and the doctor about llama.cpp."""
        question = "What is the capital of France?"
        done = self.run(gptoss, "run", "nano", question, GPTOSS_PORT=self.port)
        assert "Paris" in done.stdout, done.stderr
        found = json.loads(self.run(gptoss, "doctor", "--json", GPTOSS_PORT=self.port).stdout)
        (llama,) = (each for each in found["findings"] if each["name"] == "llama.cpp")
        assert llama["level"] == "ok"
        assert found["versions"]["llama_cpp_python"] == LLAMA


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    home = tmp_path / "home"
    home.mkdir()
    person = Person(home, without_compiler(tmp_path / "bin"), str(free_port()))
    yield person
    for program in {path.resolve() for path in home.rglob("bin/gptoss")}:
        person.run(program, "stop", GPTOSS_PORT=person.port)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("tool", "kind", "version"),
    [
        ("install.sh", "", ""),
        ("uv", "whl", ""),
        *(("uv", "tar.gz", version) for version in PYTHONS),
        *(("pip", kind, version) for kind in PACKAGES for version in PYTHONS),
        *(("pipx", kind, "") for kind in PACKAGES),
    ],
)
def test_from_nothing_to_an_answer(
    person: Person, release: Path, tool: str, kind: str, version: str
) -> None:
    command = person.command
    match tool:
        case "install.sh":
            with github() as server:
                server.files = own_release(person.home)
                releases = ("--llama-releases", server.api)
                person.install_by("/bin/sh", release / "install.sh", "--yes", *releases)
            assert not list(Path(tempfile.gettempdir()).glob("tmp.*/installers"))
        case "uv":
            options = ("--python", python(version)) if version else ()
            uv = (TOOLS / "uv", "tool", "install", *options, "--find-links", kept_llama().parent)
            person.install_by(*uv, package(release, kind))
        case "pip":
            environment = person.home / "environment"
            command = environment / "bin/gptoss"
            person.install_by(python(version), "-m", "venv", environment)
            pip = (environment / "bin/python", "-m", "pip", "install", "--find-links")
            person.install_by(*pip, kept_llama().parent, package(release, kind))
        case "pipx":
            options = ("--python", sys.executable, f"--pip-args=--find-links={kept_llama().parent}")
            person.install_by(TOOLS / "pipx", "install", *options, package(release, kind))
    person.check(command)


@pytest.mark.nightly
def test_without_llama_cpp_all_but_answers_work(person: Person, release: Path) -> None:
    """As if a wheel for this machine were missing: what does not compute runs, and says so."""
    environment = person.home / "environment"
    person.install_by(sys.executable, "-m", "venv", environment)
    pip = (environment / "bin/python", "-m", "pip")
    person.install_by(*pip, "install", "--find-links", kept_llama().parent, package(release))
    person.install_by(*pip, "uninstall", "--yes", "llama-cpp-python")
    gptoss = environment / "bin/gptoss"
    for command in (["--help"], ["--version"], ["list"], ["plan", "nano"]):
        person.install_by(gptoss, *command)
    done = person.run(gptoss, "doctor", GPTOSS_PORT=person.port)
    assert done.returncode == 1
    assert "llama.cpp: llama.cpp cannot be loaded: No module named 'llama_cpp'" in done.stdout
    done = person.run(gptoss, "run", "nano", "hi", GPTOSS_PORT=person.port)
    assert done.returncode == 10
    assert "llama.cpp cannot be loaded" in done.stderr


def package(release: Path, kind: str = "whl") -> Path:
    return next(release.glob(f"gptoss_local-*.{kind}"))


def python(version: str) -> str:
    """Return the interpreter itself: PATH may have a script that needs a larger PATH."""
    found = steps.answer_of([f"python{version}", "-c", "import sys; print(sys.executable)"])
    if not found:
        pytest.skip(f"no Python {version} is here")
    return found.strip()
