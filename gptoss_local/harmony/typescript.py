"""Tools -> the TypeScript in which harmony declares them.

Source: `template_tools_section` and `json_schema_to_typescript` in openai-harmony's encoding.rs;
the same byte by byte, odd indentation included, except for types that it loses (`anyOf`, `$ref`,
`const`, null, maps, tuples, other enums).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from gptoss_local.harmony.message import Tool
from gptoss_local.harmony.schema_document import Document, Schema

_MAX_DEPTH = 100  # levels of one schema
_MAX_PARTS = 10_000  # that are read; definitions that use each other can mean any number
_ANNOTATIONS = ("title", "description", "examples", "default")
_OF_OBJECTS = ("properties", "additionalProperties", "patternProperties")
_OF_ARRAYS = ("items", "prefixItems")
_DETAILS = (*_OF_OBJECTS, *_OF_ARRAYS, "enum")
_SHAPE = (*_DETAILS, "type", "anyOf", "oneOf", "$name")
_KEPT = (*_ANNOTATIONS, "nullable", "type", "enum", "$name")
_PLAIN = {"type", "enum", "items", "nullable", "title", "$name", "anyOf"}


def read_schema(schema: Any) -> Schema:
    """Resolve references and `allOf`, and bring every union into one of the two forms."""
    return _Reader(schema).read(schema, _Place())


class _Place(NamedTuple):
    inside: tuple[str, ...] = ("#",)
    depth: int = 0


class _Reader:
    def __init__(self, root: Any) -> None:
        self._document = Document(root)
        self._n_parts = 0

    def read(self, schema: Any, place: _Place) -> Schema:
        return self._read_flat(*self._flatten(schema, place))

    def _read_flat(self, flat: Schema, place: _Place) -> Schema:
        for keyword in ("oneOf", "anyOf"):
            if isinstance(options := flat.pop(keyword, None), list) and options:
                return self._read_union(flat, keyword, options, place)
        types = flat.get("type")
        if isinstance(types, list) and not flat.keys().isdisjoint(_DETAILS):
            if "enum" in flat:  # says it all
                del flat["type"]
            else:
                options = [{"type": name, **_of_type(flat, name)} for name in types]
                rest = {k: v for k, v in flat.items() if k not in (*_DETAILS, "type")}
                return self._read_union(rest, "anyOf", options, place)
        return self._read_parts(flat, place)

    def _flatten(self, schema: Any, place: _Place) -> tuple[Schema, _Place]:
        """Return the schema without `$ref`, `allOf` and `const`, and the place of unread parts."""
        inside, depth = place.inside, place.depth + 1
        self._n_parts += 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._n_parts > _MAX_PARTS:
            return {}, place
        flat = {k: v for k, v in schema.items() if k == "$ref" or not k.startswith("$")}
        parts = [(part, inside) for part in _list(flat.pop("allOf", None))]
        reference = flat.pop("$ref", None)
        if reference in inside:
            flat["$name"] = _name(reference)
        elif isinstance(reference, str):
            target = self._document.resolve(reference, schema)
            parts.insert(0, (target and target.schema, (*inside, reference)))
        if "const" in flat:
            flat["enum"] = [flat.pop("const")]
        if not isinstance(flat.get("enum", []), list):
            del flat["enum"]
        if flat.get("additionalProperties") is False:  # says nothing that is written down
            del flat["additionalProperties"]
        for part, around in parts:
            other, (around, _) = self._flatten(part, _Place(around, depth))
            flat = _merge(flat, other)
            inside = (*inside, *around[len(place.inside) :])
        return flat, _Place(inside, depth)

    def _read_union(self, flat: Schema, keyword: str, options: list[Any], place: _Place) -> Schema:
        flattened = [self._flatten(option, place) for option in options]
        if _has_any(flat, _SHAPE) and not any(_has_any(o, _SHAPE) for o, _ in flattened):
            return self._read_parts(flat, place)  # options of required names alone
        notes = {k: v for k, v in flat.items() if k in (*_ANNOTATIONS, "nullable")}
        shape = {k: v for k, v in flat.items() if k not in notes}
        nodes = [self._read_flat(_merge(option, shape), around) for option, around in flattened]
        nulls = [n for n in nodes if n.get("type") == "null" or n.get("enum") == [None]]
        others = [node for node in nodes if node not in nulls]
        if len(others) < len(nodes):
            notes["nullable"] = True
        if not others:
            return notes | {"type": "null"}
        if len(others) == 1:
            return others[0] | notes
        if keyword == "anyOf" and all(map(_is_plain, others)):
            return notes | {"anyOf": others}
        return notes | {"oneOf": others}

    def _read_parts(self, flat: Schema, place: _Place) -> Schema:
        node = {k: flat[k] for k in _KEPT if k in flat}
        if node.get("type") is None and "enum" not in node and "$name" not in node:
            if _has_any(flat, _OF_OBJECTS):
                node["type"] = "object"
            elif _has_any(flat, _OF_ARRAYS):
                node["type"] = "array"
        if node.get("type") == "object":
            properties = flat.get("properties")
            if isinstance(properties, dict):
                node["properties"] = {k: self.read(v, place) for k, v in properties.items()}
            node["required"] = [k for k in _list(flat.get("required")) if isinstance(k, str)]
            if (others := self._read_index(flat, place)) is not None:
                node["$index"] = others
        if node.get("type") == "array":
            items: Any = flat.get("items")
            prefix = _list(flat.get("prefixItems"))
            if isinstance(items, list):  # so were tuples written before draft 2020-12
                items, prefix = flat.get("additionalItems"), items
            if prefix:
                node["prefixItems"] = [self.read(item, place) for item in prefix]
            if isinstance(items, dict) or (items is not None and not prefix):
                node["items"] = self.read(items, place)
        return node

    def _read_index(self, flat: Schema, place: _Place) -> Schema | None:
        patterns = flat.get("patternProperties")
        kinds = list(patterns.values()) if isinstance(patterns, dict) else []
        others = flat.get("additionalProperties")
        if others is True or isinstance(others, dict):
            kinds.append(others)
        if len(kinds) <= 1:
            return self.read(kinds[0], place) if kinds else None
        return self.read({"anyOf": kinds}, place)


def _merge(first: Schema, second: Schema) -> Schema:
    merged = second | first
    for key in ("properties", "patternProperties"):
        if isinstance(first.get(key), dict) and isinstance(second.get(key), dict):
            merged[key] = first[key] | second[key] | first[key]  # in this order
    if "required" in first and "required" in second:
        merged["required"] = [*_list(first["required"]), *_list(second["required"])]
    if "enum" in first and "enum" in second:
        merged["enum"] = [value for value in first["enum"] if value in second["enum"]]
    return merged


def _of_type(flat: Schema, name: Any) -> Schema:
    keys: Iterable[str] = {"object": (*_OF_OBJECTS, "required"), "array": _OF_ARRAYS}.get(
        name if isinstance(name, str) else "", ()
    )
    return {key: flat[key] for key in keys if key in flat}


def _is_plain(node: Schema) -> bool:
    parts = [*node.get("anyOf", ()), node.get("items", {})]
    is_plain = node.keys() <= _PLAIN and node.get("type") != "object"
    return is_plain and all(_is_plain(part) for part in parts if part)


def _has_any(schema: Schema, keys: Iterable[str]) -> bool:
    return any(key in schema for key in keys)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _name(reference: str) -> str:
    """Return the name of a recursive schema: `#/$defs/Node` is Node."""
    name = unquote(reference).rpartition("/")[2]
    return name if name.isidentifier() else "any"


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
            f"\n{indent} | {_nullable(option, f'{indent}   ')}{_comments(option, bare=False)}"
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
        f"{indent} | {_nullable(each, f'{indent}   ')}{_comments(each, bare=True, known=about)}\n"
        for each in node["oneOf"]
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
