"""A Debian package: its files, and what they say.

All is real but for the environment in it, which has gptoss from this clone and a few libraries:
filling one takes minutes. `test_deb_container.py` does, and installs it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import service
from deb import build, facts
from deb.facts import PYTHON, Facts
from deb.private_environment import FOLDER
from environments import site_of
from steps import Log, SetupError
from typer.testing import CliRunner

from gptoss_local import __version__
from gptoss_local.cli.main import COMMANDS, make_app
from tests.installers.conftest import INSTALLERS

ROOT = INSTALLERS.parent
SITE = site_of(Path(sys.prefix))
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
FACTS = Facts("1.2rc1", "debian12", "bookworm", VERSION, "amd64", "A <a@b.org>", 1_780_000_000)
DOCS = "usr/share/doc/gptoss"
MAN = "usr/share/man/man1"
HEADINGS = {"DESCRIPTION", "ARGUMENTS", "OPTIONS", "COMMANDS"}


@dataclass
class Package:
    file: Path
    root: Path  # where it is unpacked
    listing: str


def _tools() -> str:
    """Say what of Debian is missing here, or that its Python is not the one that tests run in."""
    missing = [tool for tool in ("dpkg-deb", "dpkg-shlibdeps") if not shutil.which(tool)]
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    if not missing and PYTHON.is_file():
        found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True).stdout.strip()
        return "" if found == VERSION else f"{PYTHON} is Python {found}"
    return f"no {', '.join(missing) or PYTHON}"


pytestmark = pytest.mark.skipif(bool(_tools()), reason=_tools())


def make(folder: Path, umask: int) -> Path:
    """Build the package in a folder, as one who has this umask."""
    old = os.umask(umask)
    try:
        environment = folder / "root" / FOLDER
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", environment], check=True)
        site = site_of(environment)
        (site / "clone.pth").write_text(f"{ROOT}\n{SITE}\n")
        shutil.copytree(SITE / "llama_cpp" / "lib", site / "llama_cpp" / "lib")
        for name in ("include/llama.h", "lib/cmake/llama.cmake", "lib/pkgconfig/llama.pc"):
            (site / "llama_cpp" / name).parent.mkdir()  # of a release's llama.cpp
            (site / "llama_cpp" / name).touch()
        shutil.copytree(SITE / "msgspec", site / "msgspec")
        (site / "msgspec-1.dist-info").mkdir()
        (site / "msgspec-1.dist-info" / "RECORD").write_text(str(folder))
        shutil.copy(Path(sys.prefix) / "bin" / "monty", environment / "bin")
        (environment / "bin" / "pygmentize").write_text(f"#!{folder}\n")
        return build.pack(Log(folder / "log"), folder / "root", environment, FACTS, folder / "out")
    finally:
        os.umask(old)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Package]:
    folder, root = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("unpacked")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("DPKG_DEB_COMPRESSOR_LEVEL", "0")
        file = make(folder, 0o022)
        subprocess.run(["dpkg-deb", "-x", file, root], check=True)
        yield Package(file, root, answer("dpkg-deb", "-c", file))


def answer(*command: str | Path) -> str:
    """Return what a program prints; a complaint of its is a failure."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_files_are_where_debian_wants_them(package: Package) -> None:
    lines = [line.split(maxsplit=5) for line in package.listing.splitlines()]
    modes = {name.removeprefix("./"): mode for mode, *_, name in lines}
    assert {owner for _, owner, *_ in lines} == {"root/root"}
    library = f"{FOLDER}/lib/python{VERSION}/site-packages"
    expected = {
        "usr/bin/gptoss -> ../lib/gptoss/bin/gptoss": "lrwxrwxrwx",
        f"{FOLDER}/bin/gptoss": "-rwxr-xr-x",
        f"{FOLDER}/bin/monty": "-rwxr-xr-x",
        f"{FOLDER}/bin/python3 -> ../../../bin/python{VERSION}": "lrwxrwxrwx",
        f"{FOLDER}/pyvenv.cfg": "-rw-r--r--",
        f"{library}/msgspec/__init__.py": "-rw-r--r--",
        "usr/lib/systemd/user/gptoss.service": "-rw-r--r--",
        "usr/share/bash-completion/completions/gptoss": "-rw-r--r--",
        "usr/share/zsh/vendor-completions/_gptoss": "-rw-r--r--",
        "usr/share/fish/vendor_completions.d/gptoss.fish": "-rw-r--r--",
        f"{MAN}/gptoss.1.gz": "-rw-r--r--",
        f"{DOCS}/copyright": "-rw-r--r--",
        f"{DOCS}/changelog.gz": "-rw-r--r--",
        f"{DOCS}/changelog.Debian.gz": "-rw-r--r--",
        f"{DOCS}/README.Debian": "-rw-r--r--",
        "usr/share/lintian/overrides/gptoss": "-rw-r--r--",
    }
    assert {name: modes.get(name) for name in expected} == expected
    assert set(os.listdir(package.root / FOLDER / "bin")) == {"gptoss", "monty", "python3"}
    left = r"__pycache__|RECORD|direct_url|/include/|lib64|pkgconfig"
    assert not re.search(left, package.listing)


def test_nothing_names_where_it_was_built(package: Package) -> None:
    place = str(package.file.parents[1]).encode()
    files = [path for path in package.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [file for file in files if place in file.read_bytes()] == []


def test_a_library_is_there_once(package: Package) -> None:
    folder = site_of(package.root / FOLDER) / "llama_cpp" / "lib"
    contents = [file.read_bytes() for file in folder.iterdir() if not file.is_symlink()]
    assert len(set(contents)) == len(contents)
    assert (folder / "libllama.so").is_file()


def test_control_says_what_it_needs(package: Package) -> None:
    def field(name: str) -> str:
        return answer("dpkg-deb", "-f", package.file, name).strip()

    assert field("Version") == "1.2~rc1-1~debian12"
    assert package.file.name == "gptoss_1.2~rc1-1~debian12_amd64.deb"
    needs = field("Depends").split(", ")
    minor = sys.version_info.minor
    assert {f"python3 (>= 3.{minor})", f"python3 (<< 3.{minor + 1})", "ca-certificates"} <= {*needs}
    assert {"libc6", "libgomp1", "libstdc++6"} <= {need.partition(" ")[0] for need in needs}
    assert int(field("Installed-Size")) > 5000
    assert answer("dpkg-parsechangelog", "-l", package.root / DOCS / "changelog.Debian.gz").count(
        "Version: 1.2~rc1-1~debian12\n"
    )


def test_the_unit_is_the_installers(package: Package) -> None:
    text = (package.root / "usr/lib/systemd/user/gptoss.service").read_text()
    assert text == service.unit_text(Path("/usr/bin/gptoss"))
    assert 'ExecStart="/usr/bin/gptoss" serve\n' in text


def test_completion_is_what_the_command_prints(package: Package) -> None:
    for shell, name in build.shared_files.COMPLETIONS.items():
        command = [sys.executable, "-m", "gptoss_local", "completion", shell]
        assert (package.root / name).read_text() == answer(*command)
        if shutil.which(shell):
            answer(shell, "-n", package.root / name)


@pytest.mark.skipif(not shutil.which("man"), reason="no man")
def test_man_pages_say_what_the_help_says(package: Package) -> None:
    folder = package.root / MAN
    names = {f"gptoss-{command}.1.gz": command for command in COMMANDS} | {"gptoss.1.gz": ""}
    assert set(os.listdir(folder)) == set(names)
    for name, command in names.items():
        page = man(folder / name)
        assert page.startswith(name.partition(".")[0].upper() + "(1)")
        assert f"gptoss {__version__}" in page.splitlines()[-1]
        body = page.partition("\nSYNOPSIS\n")[2].partition("\nSEE ALSO\n")[0]
        lines = [line for line in body.splitlines() if line not in HEADINGS]
        shown = CliRunner().invoke(make_app(), [command, "--help"] if command else ["--help"])
        helped = re.sub(r"Usage:|^(Arguments|Options|Commands):$", "", shown.output, flags=re.M)
        expected = helped.replace("gptoss help COMMAND explains a command.", "")
        assert without_spaces("".join(lines)) == without_spaces(
            expected.replace("root", "gptoss", 1)
        )


def without_spaces(text: str) -> str:
    """Return the letters alone: the help is wrapped, also after a hyphen."""
    return "".join(text.split())


def man(page: Path) -> str:
    """Return what a reader sees; roff complains about nothing."""
    variables = os.environ | {"MANWIDTH": "2000", "LC_ALL": "C.UTF-8"}
    command = ["man", "--warnings", "-E", "UTF-8", "-l", page]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_scripts_of_dpkg_are_clean() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    for name in ("postinst", "prerm"):
        assert (INSTALLERS / "deb" / name).read_text().startswith("#!/bin/sh\nset -e\n")
        if shellcheck.is_file():
            answer(shellcheck, INSTALLERS / "deb" / name)


def test_another_place_and_umask_give_the_same_bytes(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPKG_DEB_COMPRESSOR_LEVEL", "0")
    assert make(tmp_path / "elsewhere", 0o077).read_bytes() == package.file.read_bytes()


def test_a_wheel_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--llama-wheel", "/nowhere.whl"]) == 1
    assert capsys.readouterr().err.startswith("\n/nowhere.whl does not exist.\n")


def test_a_release_with_an_older_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\necho 3.10\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setattr(facts, "PYTHON", tmp_path / "python3")
    with pytest.raises(SetupError, match=r"is Python 3\.10; gptoss needs 3\.11"):
        facts.gather("1.0")


def test_variables_replace_what_the_commit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBFULLNAME", "B")
    monkeypatch.setenv("DEBEMAIL", "b@c.org")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "5")
    found = facts.gather("1.0")
    assert (found.maintainer, found.epoch, found.python) == ("B <b@c.org>", 5, VERSION)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.2.3", "1.2.3-1~d"), ("1.0rc2", "1.0~rc2-1~d"), ("1.0.dev3", "1.0~.dev3-1~d")],
)
def test_versions_sort_as_they_do_for_pip(version: str, expected: str) -> None:
    found = Facts(version, "d", "", "3.11", "amd64", "", 0).debian_version
    assert found == expected
    if version != "1.2.3":
        final = Facts(version[:3], "d", "", "3.11", "amd64", "", 0).debian_version
        command = ["dpkg", "--compare-versions", found, "lt", final]
        subprocess.run(command, check=True)
