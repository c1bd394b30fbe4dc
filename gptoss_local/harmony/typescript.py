"""Tools -> the TypeScript in which harmony declares them.

Source: `template_tools_section` and `json_schema_to_typescript` in openai-harmony's encoding.rs;
the same byte by byte, odd indentation included, except for types that it loses (`anyOf`, `$ref`,
`const`, null, maps, tuples, other enums).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gptoss_local.harmony.message import Tool
from gptoss_local.harmony.tool_schema import Schema, read_schema


def render_tools(namespaces: Iterable[tuple[str, str, Sequence[Tool]]]) -> str:
    return "\n\n".join(["# Tools", *(_namespace(*each) for each in namespaces)])


def _namespace(name: str, about: str, tools: Sequence[Tool]) -> str:
    if not tools:
        return "\n".join([f"## {name}\n", *_lines(about)])
    lines = [f"## {name}\n", *(f"// {line}" for line in _lines(about)), f"namespace {name} {{\n"]
    for tool in tools:
        lines += [f"// {line}" for line in _lines(tool.description)]
        arguments = ""
        if tool.parameters is not None:
            arguments = f"_: {_type(read_schema(tool.parameters), '')}"
        lines.append(f"type {tool.name.removeprefix(f'{name}.')} = ({arguments}) => any;\n")
    return "\n".join([*lines, f"}} // namespace {name}"])


def _lines(text: str) -> list[str]:
    """Split as Rust's `str::lines`, which knows fewer line ends than `splitlines`."""
    *lines, last = text.split("\n")
    return [line.removesuffix("\r") for line in lines] + ([last] if last else [])


def _type(node: Schema, indent: str) -> str:
    if "oneOf" in node:
        return "".join(
            f"\n{indent} | {_option(option, indent)}{_comments(option, bare=False)}"
            for option in node["oneOf"]
        )
    if "anyOf" in node:
        return " | ".join(_nullable(option, indent) for option in node["anyOf"])
    if node.get("enum"):
        return " | ".join(map(_literal, node["enum"]))
    kind = node.get("type")
    if isinstance(kind, list):
        names = ["number" if name == "integer" else name for name in kind if isinstance(name, str)]
        return " | ".join(names) or "any"
    match kind:
        case "object":
            return _object(node, indent)
        case "array":
            return _array(node, indent)
        case "string" | "boolean" | "number" | "null":
            return str(kind)
        case "integer":
            return "number"
        case _:
            return str(node.get("$name", "any"))


def _nullable(node: Schema, indent: str) -> str:
    text = _type(node, indent)
    if node.get("nullable") is not True or "null" in _types(node) or None in node.get("enum", ()):
        return text
    return f"{text}\n{indent} | null" if "oneOf" in node else f"{text} | null"


def _types(node: Schema) -> list[Any]:
    types = node.get("type")
    return types if isinstance(types, list) else [types]


def _option(node: Schema, indent: str) -> str:
    return _nullable(node, f"{indent}   ")


def _object(node: Schema, indent: str) -> str:
    about = _text(node, "description")
    text = "{\n" if about is None else f"{indent}// {about}\n{{\n"
    required = set(node["required"])
    for key, value in node.get("properties", {}).items():
        text += _property(key if key in required else f"{key}?", value, indent)
    if "$index" in node:
        text += _property("[key: string]", node["$index"], indent)
    return f"{text}{indent}}}"


def _array(node: Schema, indent: str) -> str:
    items = node.get("items")
    if "prefixItems" in node:
        entries = [_nullable(entry, indent) for entry in node["prefixItems"]]
        if items is not None:
            entries.append(f"...{_entries(items, indent)}")
        return f"[{', '.join(entries)}]"
    return "Array<any>" if items is None else _entries(items, indent)


def _entries(items: Schema, indent: str) -> str:
    text = _nullable(items, indent)
    strings = items.get("type") == "string" and "enum" in items and not items.get("nullable")
    if strings and all(isinstance(value, str) for value in items["enum"]):
        return f"{text}[]"  # openai-harmony writes "a" | "b"[]
    if "oneOf" in items:
        return f"({text}\n{indent})[]"
    is_union = items.get("nullable") is True or len(_types(items)) > 1 or "anyOf" in items
    return f"({text})[]" if is_union or len(items.get("enum", ())) > 1 else f"{text}[]"


def _property(name: str, node: Schema, indent: str) -> str:
    above = "".join(f"{indent}{line}\n" for line in _above(node))
    if "oneOf" not in node:
        default = f" // {text}" if (text := _default(node, bare=True)) else ""
        return f"{above}{indent}{name}: {_nullable(node, f'{indent}    ')},{default}\n"
    about = _text(node, "description")
    options = [
        f"{indent} | {_option(option, indent)}{_comments(option, bare=True, known=about)}\n"
        for option in node["oneOf"]
    ]
    if node.get("nullable") is True:
        options.append(f"{indent} | null\n")
    return f"{above}{indent}{name}:\n{''.join(options)}{indent},\n"


def _above(node: Schema) -> Iterator[str]:
    about = _text(node, "description")
    if (title := _text(node, "title")) is not None:
        yield f"// {title}"
        yield "//"
    if about is not None and "oneOf" not in node:
        yield f"// {about}"
    items = node.get("items", {})
    if items.get("type") != "object" and (of_items := _text(items, "description")):
        yield f"// Each: {of_items}"
    examples = node.get("examples")
    if isinstance(examples, list) and examples:
        yield "// Examples:"
        yield from (f"// - {_literal(example)}" for example in examples)
    if "oneOf" in node:
        if about is not None and about != _text(node["oneOf"][0], "description"):
            yield f"// {about}"
        if default := _default(node, bare=True):
            yield f"// {default}"


def _comments(option: Schema, *, bare: bool, known: str | None = None) -> str:
    about = _text(option, "description")
    parts = [about if about != known else None, _default(option, bare=bare)]
    said = [part for part in parts if part is not None]
    return f" // {' '.join(said)}" if said else ""


def _default(node: Schema, *, bare: bool) -> str | None:
    if "default" not in node:
        return None
    value = node["default"]
    if isinstance(value, str) and node.get("enum"):
        return f"default: {value if bare else _json(value)}"
    return f"default: {_literal(value)}"


def _text(node: Schema, key: str) -> str | None:
    value = node.get(key)
    return value if isinstance(value, str) else None


def _literal(value: Any) -> str:
    """Write JSON, except for texts, which openai-harmony does not escape."""
    return f'"{value}"' if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
