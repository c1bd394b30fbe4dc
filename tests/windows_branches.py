"""Finds where the code asks which system it runs on, from its syntax trees."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("gptoss_local", "convert", "tui", "installers")
_ASKED = {("sys", "platform"), ("os", "name")}
_FLAGS = {"_WINDOWS", "_is_windows", "is_wddm"}  # names that hold the answer
_SYSTEMS = {"win32", "windows", "nt", "linux", "posix"}
_MODULES = {"msvcrt", "winreg", "termios", "fcntl", "resource"}
_ONLY_ONE_HAS = {"O_BINARY", "sysconf", "fdatasync", "RWF_NOWAIT", "SIGKILL"}


def branches() -> dict[str, list[int]]:
    """Return the lines by `package/module.py:function`; outside of functions by the module."""
    found: dict[str, list[int]] = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for function, line in _in(tree, ""):
                where = path.relative_to(ROOT).as_posix() + (f":{function}" if function else "")
                found.setdefault(where, []).append(line)
    return found


def _in(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _in(child, f"{function}.{child.name}".lstrip("."))
        else:
            if _asks(child):
                yield function, child.lineno  # type: ignore[attr-defined]
            yield from _in(child, function)


def _asks(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in _ASKED:
            return True
        case ast.Name(id=name, ctx=ast.Load()) if name in _FLAGS:
            return True
        case ast.Attribute(attr="is_wddm", ctx=ast.Load()):
            return True
        case ast.Compare(left=ast.Name(id="platform" | "here"), comparators=[values]):
            return any(
                isinstance(each, ast.Constant) and each.value in _SYSTEMS
                for each in ast.walk(values)
            )
        case ast.Compare(left=ast.Attribute(attr="platform"), comparators=[ast.Constant(value=v)]):
            return v in _SYSTEMS
        case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[_, ast.Constant(value=v), *_]):
            return v in _ONLY_ONE_HAS
        case ast.ExceptHandler(type=ast.Name(id="ImportError")):
            return False
        case ast.Import(names=names):
            return any(name.name in _MODULES for name in names)
    return False


if __name__ == "__main__":
    for where, lines in branches().items():
        print(where, lines)
