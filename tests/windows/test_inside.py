"""Checks that Windows' own Python runs: the functions of the product, called one by one."""

from pathlib import Path

import pytest

from tests.windows.conftest import ON_WINDOWS, Pc, windows_path

pytestmark = ON_WINDOWS

INSIDE = Path(__file__).with_name("inside")
OPTIONS = ("--noconftest", "-p", "no:cacheprovider", "--import-mode=importlib", "-q")


@pytest.mark.parametrize("file", sorted(INSIDE.glob("*.py")), ids=lambda file: file.stem)
def test_on_windows_python(pc: Pc, file: Path) -> None:
    options = (*OPTIONS, "-c", windows_path(INSIDE / "pytest.ini"))
    running = pc.start("-B", "-m", "pytest", *options, windows_path(file))
    assert running.wait() == 0, running.printed
