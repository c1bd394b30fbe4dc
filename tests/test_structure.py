"""The shape of the code beyond the rules of ruff and import-linter in pyproject.toml."""

from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]
PACKAGES = ("gptoss_local", "convert", "tui")
SOURCES = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
N_LINES = 450
N_ALL_LINES = 64_400
"""The budget of the product. Whoever needs more takes as much away, or says what it is for."""


def test_modules_stay_readable() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n")
        for path in SOURCES
    }
    assert not {name for name, n in lengths.items() if n > N_LINES}


def test_the_product_has_its_lines_and_no_more() -> None:
    paths = [*SOURCES, *(ROOT / "installers").glob("*.py")]
    n_lines = sum(path.read_text(encoding="utf-8").count("\n") for path in paths)
    assert N_ALL_LINES - 300 < n_lines <= N_ALL_LINES, "lower the budget with the product"


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    arrows = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names the modules


def test_the_map_names_every_package() -> None:
    page = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    packages = {path.parent.relative_to(ROOT) for path in SOURCES if path.name == "__init__.py"}
    assert not {str(p) for p in packages if f"`{p}/`" not in page} - {"gptoss_local", "tui"}
