"""The DLLs that Windows loads for gptoss: each one is Windows' own, or comes with a package."""

import re
import shutil
from pathlib import Path

import pefile
import pytest

from tests.windows import on_wine
from tests.windows.conftest import ON_WINDOWS, PYTHON

pytestmark = [*ON_WINDOWS, pytest.mark.usefixtures("installed")]
SITE = on_wine.SITE
LLAMA = SITE / "llama_cpp" / "lib"
# Microsoft's runtime of C++, which Wine has and a fresh Windows has not.
_REDISTRIBUTABLE = re.compile(r"(msvcp|vcruntime|vcomp|concrt|mfc|atl)\d")
_API_SET = re.compile(r"(api|ext)-ms-win-")
# Parts of pywin32, which the MCP SDK brings, that nothing here imports.
_UNUSED = ("pythonwin", "win32comext")


def imports(dll: Path) -> set[str]:
    with pefile.PE(str(dll), fast_load=True) as image:
        kinds = ("IMPORT", "DELAY_IMPORT")
        tables = [f"IMAGE_DIRECTORY_ENTRY_{kind}" for kind in kinds]
        image.parse_data_directories([pefile.DIRECTORY_ENTRY[table] for table in tables])
        entries = [getattr(image, f"DIRECTORY_ENTRY_{kind}", []) for kind in kinds]
        return {entry.dll.decode().lower() for each in entries for entry in each}


def missing(dll: Path, *folders: Path) -> set[str]:
    """Return the DLLs that are neither of Windows, nor of Python, nor in these folders."""
    own = {path.name.lower() for path in on_wine.SYSTEM.iterdir()}
    found = {name for name in own if not _REDISTRIBUTABLE.match(name)}
    for folder in (PYTHON.parent, dll.parent, *folders):
        found |= {path.name.lower() for path in folder.iterdir()}
    return {name for name in imports(dll) - found if not _API_SET.match(name)}


def test_llama_cpp_has_its_dlls() -> None:
    found = list(LLAMA.glob("*.dll"))
    assert len(found) >= 4
    assert {dll.name: names for dll in found if (names := missing(dll))} == {}


@pytest.mark.parametrize("lost", ["ggml-base.dll", "ggml-cpu.dll"])
def test_a_lost_dll_is_noticed(tmp_path: Path, lost: str) -> None:
    shutil.copytree(LLAMA, tmp_path / "lib")
    (tmp_path / "lib" / lost).unlink()
    assert missing(tmp_path / "lib" / "ggml.dll") == {lost}


def test_packages_need_no_runtime_of_visual_studio() -> None:
    """A wheel that is compiled with it brings it along: no one has to install it."""
    beside = [*SITE.glob("*.libs"), SITE / "pywin32_system32"]
    modules = [
        path for path in SITE.rglob("*.pyd") if path.relative_to(SITE).parts[0] not in _UNUSED
    ]
    assert len(modules) > 50
    assert {path.name: names for path in modules if (names := missing(path, *beside))} == {}
