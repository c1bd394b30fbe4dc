"""What the documentation promises of the code's shape."""

import ast
import inspect
from pathlib import Path

import pytest

from gptoss_local import errors

ROOT = Path(__file__).parents[1]
SOURCES = [
    path for folder in ("gptoss_local", "convert", "tui") for path in (ROOT / folder).rglob("*.py")
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 50, node.name


def test_structure_page_names_every_module() -> None:
    page = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    stems = {path.stem for path in SOURCES} - {"__init__", "__main__"}
    commands = {path.stem for path in (ROOT / "gptoss_local" / "cli").glob("*.py")}
    assert not {s for s in stems - commands if f"`{s}`" not in page and f"/{s}.py`" not in page}


def test_error_tree_is_drawn_whole() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.GptOssError):
            assert name in (errors.__doc__ or "")
