"""Declarations of tools, as in openai-harmony and beyond it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import DeveloperContent, HarmonyEncoding, Role, ToolDescription
from openai_harmony import Message as HarmonyMessage

from gptoss_local.harmony import Tool
from gptoss_local.harmony.typescript import render_tools

Schema = dict[str, Any]
FIXTURES = Path(__file__).parents[1] / "server" / "fixtures"


def by_harmony(encoding: HarmonyEncoding, tools: list[Tool]) -> str:
    content = DeveloperContent.new().with_function_tools(
        [ToolDescription.new(t.name, t.description, parameters=t.parameters) for t in tools]
    )
    message = HarmonyMessage.from_role_and_content(Role.DEVELOPER, content)
    text = encoding.decode(encoding.render(message))
    return text.removeprefix("<|start|>developer<|message|>").removesuffix("<|end|>")


def declared(tools: list[Tool]) -> str:
    return render_tools([("functions", "", tools)])


def body_of(schema: Schema) -> str:
    """Return the declaration of a property `a`."""
    tool = Tool("f", "", {"type": "object", "properties": {"a": schema}, "$defs": DEFS})
    text = declared([tool])
    return text.partition("(_: {\n")[2].removesuffix("}) => any;\n\n} // namespace functions")


DEFS: dict[str, Schema] = {
    "Color": {"enum": ["red", "green"]},
    "Tree": {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            "parent": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
        },
        "required": ["value"],
    },
    "Named": {"properties": {"name": {"type": "string"}}, "required": ["name"]},
    "One": {"allOf": [{"$ref": "#/$defs/Two"}, {"$ref": "#/$defs/Two"}]},
    "Two": {"allOf": [{"$ref": "#/$defs/One"}, {"properties": {"b": {"$ref": "#/$defs/One"}}}]},
}
TREE = "{\n    value: number,\n    children?: Tree[],\n    parent?: Tree | null,\n    }"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"enum": ["x", 1, None, True, 1.5]}, 'a?: "x" | 1 | null | true | 1.5,'),
        ({"type": "integer", "enum": [1, 2], "default": 1}, "a?: 1 | 2, // default: 1"),
        ({"type": ["string", "null"], "enum": ["x", None]}, 'a?: "x" | null,'),
        ({"const": "x"}, 'a?: "x",'),
        ({"const": {"k": [1]}}, 'a?: {"k":[1]},'),
        ({"type": "null"}, "a?: null,"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
         "a?: string | null, // default: null"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "D"},
         "// D\na?: string | number,"),
        ({"anyOf": [{"type": "string", "description": "D"}, {"type": "integer"}]},
         "a?:\n | string // D\n | number\n,"),
        ({"oneOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]},
         "a?:\n | string\n | number\n | null\n,"),
        ({"type": ["array", "null"], "items": {"type": "string"}}, "a?: string[] | null,"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
         "a?: (string | number)[],"),
        ({"type": "array", "items": {"type": "string", "nullable": True, "description": "D"}},
         "// Each: D\na?: (string | null)[],"),
        ({"type": "array", "items": {"enum": [1, 2]}}, "a?: (1 | 2)[],"),
        ({"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}, 'a?: "x" | "y"[],'),
        ({"type": "array", "items": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/Named"}]}},
         "a?: (\n     | string\n     | {\n       name: string,\n       }\n    )[],"),
        ({"prefixItems": [{"type": "number"}, {"type": "string"}]}, "a?: [number, string],"),
        ({"type": "array", "items": [{"type": "number"}], "additionalItems": {"const": 1}},
         "a?: [number, ...1[]],"),
        ({"type": "object", "additionalProperties": {"type": "number"}},
         "a?: {\n    [key: string]: number,\n    },"),
        ({"patternProperties": {"^a": {"type": "number"}, "^b": {"type": "string"}}},
         "a?: {\n    [key: string]: number | string,\n    },"),
        ({"$ref": "#/$defs/Color", "description": "D"}, '// D\na?: "red" | "green",'),
        ({"$ref": "#/$defs/Tree"}, f"a?: {TREE},"),
        ({"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}, f"a?: {TREE} | null,"),
        ({"allOf": [{"$ref": "#/$defs/Named"}, {"properties": {"x": {"const": 1}}}]},
         "a?: {\n    name: string,\n    x?: 1,\n    },"),
        ({"allOf": [{"$ref": "#/$defs/Color"}], "default": "red"},
         'a?: "red" | "green", // default: red'),
        ({"type": "object", "properties": {"x": {}, "y": {}}, "anyOf": [{"required": ["x"]}]},
         "a?: {\n    x?: any,\n    y?: any,\n    },"),
        ({"properties": {"x": {}}, "oneOf": [{"properties": {"k": {"const": 1}}}]},
         "a?: {\n    k?: 1,\n    x?: any,\n    },"),
        ({"$ref": "#"}, "a?: any,"),
        ({"$ref": "#/$defs/None"}, "a?: any,"),
        ({"$ref": "http://example.org"}, "a?: any,"),
        ({"type": "string", "examples": ["x", 2]}, '// Examples:\n// - "x"\n// - 2\na?: string,'),
    ],
)  # fmt: skip
def test_declarations_beyond_openai_harmony(schema: Schema, text: str) -> None:
    assert body_of(schema) == text + "\n"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NOTES = st.fixed_dictionaries(
    {},
    optional={
        "title": TEXTS,
        "description": TEXTS,
        "examples": st.lists(TEXTS, max_size=2),
        "default": st.one_of(
            TEXTS, st.none(), st.booleans(), st.integers(-9, 9),
            st.sampled_from([0.5, 2.0, 1e16, 1e-7]),
            st.lists(TEXTS, max_size=2), st.dictionaries(TEXTS, st.integers(0, 9), max_size=2),
        ),
        "minimum": st.just(3),
        "additionalProperties": st.just(False),
    },
)  # fmt: skip
LEAVES: st.SearchStrategy[Schema] = st.one_of(
    st.sampled_from(["string", "number", "integer", "boolean", "array", "object"]).map(
        lambda name: {"type": name}
    ),
    st.lists(TEXTS, max_size=3).map(lambda values: {"type": "string", "enum": values}),
    st.lists(st.sampled_from(["string", "integer", "boolean", "null"]), min_size=1).map(
        lambda names: {"type": names}
    ),
    st.just({}),
)


def _property(schema: Schema, notes: Schema, *, nullable: bool) -> Schema:
    """Leave out the notes that openai-harmony drops."""
    if "oneOf" in schema and "description" in schema["oneOf"][0]:
        notes = {key: value for key, value in notes.items() if key != "description"}
    is_told = "oneOf" not in schema and "null" not in json.dumps(schema)
    return schema | notes | ({"nullable": True} if nullable and is_told else {})


def _object(properties: dict[str, Schema], required: list[str], about: str | None) -> Schema:
    schema = {"type": "object", "properties": properties, "required": required}
    return schema if about is None else schema | {"description": about}


def _is_list(schema: Schema) -> bool:
    """Whether `[]` behind its type would mean all of it, and no comment is lost."""
    kind = schema.get("type")
    is_union = "oneOf" in schema or (isinstance(kind, list) and len(kind) > 1)
    return not is_union and (kind == "object" or "description" not in schema)


def _above(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    keys = st.sampled_from(["path", "a b", "ключ", "x"])
    noted = st.builds(_property, inner, NOTES, nullable=st.booleans())
    options = st.lists(st.builds(lambda s, n: s | n, inner, NOTES), min_size=2, max_size=3)
    return st.one_of(
        st.builds(
            _object, st.dictionaries(keys, noted, max_size=3), st.lists(keys), st.none() | TEXTS
        ),
        inner.filter(_is_list).map(lambda items: {"type": "array", "items": items}),
        options.map(lambda options: {"oneOf": options}),
    )


@given(schema=st.recursive(LEAVES, _above, max_leaves=6), description=TEXTS)
def test_equals_openai_harmony(
    harmony_encoding: HarmonyEncoding, schema: Schema, description: str
) -> None:
    """Wherever that one leaves nothing out."""
    tools = [Tool("f", description, schema), Tool("g")]
    assert declared(tools) == by_harmony(harmony_encoding, tools)


def _tools_in(value: Any) -> Iterator[Tool]:
    if isinstance(value, list):
        for item in value:
            yield from _tools_in(item)
    elif isinstance(value, dict):
        schema = value.get("parameters", value.get("input_schema"))
        if isinstance(schema, dict) and "name" in value:
            yield Tool(value["name"], value.get("description", ""), schema)
        for item in value.values():
            yield from _tools_in(item)


def test_tools_of_real_clients_equal_openai_harmony(harmony_encoding: HarmonyEncoding) -> None:
    found = [t for f in FIXTURES.glob("*.json") for t in _tools_in(json.loads(f.read_text()))]
    whole = [tool for tool in found if "anyOf" not in json.dumps(tool.parameters)]
    assert len(whole) > 15
    assert declared(whole) == by_harmony(harmony_encoding, whole)
    for tool in found:
        assert "any," not in declared([tool]), tool


KEYWORDS = st.sampled_from(
    ["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties", "required", "items",
     "prefixItems", "additionalProperties", "patternProperties", "nullable", "default", "title",
     "description", "examples", "$name", "$index", "name", "$defs"]
)  # fmt: skip
VALUES = st.sampled_from(["object", "array", "null", "#", "#/$defs/a", "#/properties/%", "x", 3])
JUNK = st.recursive(
    VALUES | st.none() | st.booleans() | st.just(float("1e300")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=25,
)


@given(schema=st.dictionaries(KEYWORDS, JUNK, max_size=6))
def test_no_schema_is_too_odd(schema: Schema) -> None:
    assert declared([Tool("f", "", schema)]).startswith("# Tools")


def test_definitions_that_grow_beyond_measure_are_cut() -> None:
    """A small schema that means 2**60 properties, or one 5000 levels deep."""
    pair = {f"d{i}": {"properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "ab"}}
            for i in range(60)}  # fmt: skip
    sums = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    chain = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(5000)}
    refs = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5000)}
    union: Schema = {}
    for _ in range(40):
        union = {"properties": {"x": union}, "anyOf": [{"required": [], "type": "object"}] * 2}
    for schema in ({"$ref": "#/$defs/d0", "$defs": d} for d in (pair, sums, chain, refs)):
        assert len(declared([Tool("f", "", schema)])) < 5_000_000
    assert len(declared([Tool("f", "", union)])) < 5_000_000
