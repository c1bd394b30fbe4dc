"""The shape of the code: packages on the map, no circles, and limits that keep it readable.

A limit may be exceeded by what is listed below with a reason. Raise none of them to please a test.
"""

import ast
import inspect
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from gptoss_local import errors

ROOT = Path(__file__).parents[1]
PACKAGES = ("gptoss_local", "convert", "tui")
SOURCES = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
INSTALLERS = sorted((ROOT / "installers").glob("*.py"))

N_LINES, N_FUNCTION_LINES, N_PARAMETERS, N_METHODS = 450, 70, 6, 14
LARGE = {
    "Context": "llama.cpp's context as it is",
    "Conversation": "every move in a tree of turns",
    "ChatView": "the screen, for all parts below it",
    "ChatScreen": "Textual looks for its handlers here",
    "chat.py": "the keys of ChatScreen, and the handlers that Textual looks for in it",
    "History": "one transaction a method",
    "Slots": "counts and moves of cells belong together",
    "convert_checkpoint": "the options of a conversion",
    "pull_checkpoint": "the options of a pull",
    "verify_model": "the options of a verification",
    "lay_out": "the options of a conversion",
    "generate": "what a request asks of the engine",
}
"""Classes with more public methods, functions with more parameters, longer modules; and why."""


def functions(tree: ast.AST) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                yield owner + child.name, child


def too_large(path: Path) -> Iterator[str]:
    """The names in a module that exceed a limit."""
    text = path.read_text(encoding="utf-8")
    if text.count("\n") > N_LINES and path.name not in LARGE:
        yield path.name
    tree = ast.parse(text)
    is_command = "cli" in path.parts  # each parameter is an option that --help shows
    for name, function in functions(tree):
        n_lines = (function.end_lineno or 0) - function.lineno
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        n_parameters = len([each for each in names if each not in ("self", "cls")])
        is_listed = name in LARGE or name.rpartition(".")[2] in LARGE or is_command
        if (n_lines >= N_FUNCTION_LINES and not is_command) or (
            n_parameters > N_PARAMETERS and not is_listed
        ):
            yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = [name for name, _ in functions(ast.Module([node], [])) if "._" not in name]
            if len(methods) > N_METHODS and node.name not in LARGE:
                yield node.name


def test_modules_functions_and_classes_stay_readable() -> None:
    found = [f"{path.relative_to(ROOT)}: {name}" for path in SOURCES for name in too_large(path)]
    assert found == []


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    arrows = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names the modules


def test_the_map_names_every_package() -> None:
    page = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    packages = {path.parent.relative_to(ROOT) for path in SOURCES if path.name == "__init__.py"}
    assert not {str(p) for p in packages if f"`{p}/`" not in page} - {"gptoss_local", "tui"}


def test_error_tree_is_drawn_whole() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.GptOssError):
            assert name in (errors.__doc__ or "")


N_PRIVATE = 109
"""Uses of private names in tests: lower it with each one that goes, and raise it never."""

FOREIGN = {"_request_id": "an attribute of answers in OpenAI's SDK", "_exit": "of os"}
"""Names that look private and are not the product's."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in FOREIGN


def defined_names(tree: ast.AST) -> Iterator[str]:
    """The functions, classes, variables and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def private_uses(tree: ast.AST, private: set[str]) -> Iterator[tuple[int, str]]:
    """Private names that a test imports, reads from an object, or patches."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(
            ("bench", "tests")
        ):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            names = [] if is_own else [node.attr]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
            names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
        yield from ((node.lineno, name) for name in names if name in private)


def test_tests_reach_into_no_private_names() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (*SOURCES, *INSTALLERS)]
    private = {path.stem for path in SOURCES} | {n for tree in trees for n in defined_names(tree)}
    private = set(filter(is_private, private))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not {".venv", "node_modules"} & set(path.parts)  # programs of tests/clients
        for line, name in private_uses(ast.parse(path.read_text(encoding="utf-8")), private)
    ]
    assert len(found) == N_PRIVATE, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "n"),
    [
        ("self._x", 0),
        ("engine._x", 1),
        ("engine.x", 0),
        ("from gptoss_local.engine import _x", 1),
        ("from tests.engine import _x", 0),
        ("monkeypatch.setattr(engine, '_x', 1)", 1),
        ("monkeypatch.setattr('gptoss_local.engine._x', 1)", 1),
        ("path._y", 0),  # the product defines none
    ],
)
def test_a_use_of_a_private_name_is_found(code: str, n: int) -> None:
    assert len(list(private_uses(ast.parse(code), {"_x"}))) == n
