"""Schemas of formats: every keyword is enforced or refused, by its name and place."""

from pathlib import Path
from typing import Any

import pytest

from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.errors import UsageError
from gptoss_local.harmony import JsonFormat, Tool, Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from tests.chat.masked import accepts


@pytest.fixture(scope="module")
def masks(nano_gguf: Path) -> MaskCompiler:
    return MaskCompiler(nano_gguf)


# Of the vocabularies of drafts 4 to 2020-12.
KEYWORDS = {
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor",
    "$recursiveRef", "$ref", "$schema", "additionalItems", "additionalProperties", "allOf",
    "anyOf", "const", "contains", "contentEncoding", "contentMediaType", "contentSchema",
    "default", "definitions", "dependencies", "dependentRequired", "dependentSchemas",
    "deprecated", "description", "else", "enum", "examples", "exclusiveMaximum",
    "exclusiveMinimum", "format", "id", "if", "items", "maxContains", "maxItems", "maxLength",
    "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties",
    "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems",
    "properties", "propertyNames", "readOnly", "required", "then", "title", "type",
    "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "writeOnly",
}  # fmt: skip
NOTES = {
    "$comment", "title", "description", "default", "examples", "deprecated", "readOnly",
    "writeOnly", "id", "$schema", "contentEncoding", "contentMediaType", "contentSchema",
    "$dynamicAnchor", "$recursiveAnchor",
}  # fmt: skip
# What editors, form builders and code generators write into real schemas.
VENDORS_NOTES: dict[str, Any] = {
    "readonly": True, "name": "a", "links": [], "version": 2, "comment": "x", "javaType": "a.B",
    "propertyOrder": 1, "alias": "b", "markdownDescription": "*x*", "enumNames": ["A"],
    "propertyOrdering": ["a"], "errorMessage": {"type": "no"}, "enumDescriptions": ["x"],
    "deprecationMessage": "x", "defaultSnippets": [{"body": {}}], "tsType": "Foo", "order": 3,
    "javaInterfaces": ["C"], "faker": "name", "unit": "kg", "options": {"hidden": True},
    "label": "A", "placeholder": "a", "widget": "select", "group": "g", "help": "h", "meta": {},
    "ui:widget": "x", "x-order": 1, "$async": True, "strict": True, "media": {}, "scope": "s",
    "source": "x", "optional": True, "hidden": False, "tags": ["a"], "display": "x", "note": "y",
    "headerTemplate": "x", "doNotSuggest": True, "suggestSortText": "a", "displayName": "A",
    "sensitive": True, "immutable": True, "visible": True, "position": 1, "values": [1],
    "@type": "x", "_type": "x", "ui:type": "x",
    "extends": "Base", "$generated": "now", "_id": "5", "self": {"vendor": "v"}, "id": "/a",
    "discriminator": {"propertyName": "kind"}, "example": "a", "externalDocs": {}, "xml": {},
}  # fmt: skip
S = {"type": "string"}
CAT = '{"kind": "cat"}'
CATS = {
    "$defs": {
        name: {
            "type": "object",
            "properties": {"kind": {"const": kind}},
            "required": ["kind"],
        }
        for name, kind in (("c", "cat"), ("d", "dog"))
    },
    "discriminator": {"propertyName": "kind"},
}
ENFORCED_CASES: list[tuple[dict[str, Any], str, str]] = [
    (S, '"a"', "1"),
    ({"enum": ["a", 1]}, "1", "2"),
    ({"const": {"a": 1}}, '{"a": 1}', '{"a": 2}'),
    ({"anyOf": [S, {"type": "null"}]}, "null", "1"),
    ({"oneOf": [S, {"type": "null"}]}, "null", "1"),
    ({"allOf": [S, {"maxLength": 1}]}, '"a"', '"ab"'),
    ({"$ref": "#/$defs/x", "$defs": {"x": S}}, '"a"', "1"),
    ({"$ref": "#/definitions/x", "definitions": {"x": S}, "maxLength": 1}, '"a"', '"ab"'),
    ({"$ref": "#x", "$defs": {"x": {"$anchor": "x", **S}}, "$id": "http://a.b/c"}, '"a"', "1"),
    ({"properties": {"a": S}}, '{"a": "b"}', '{"a": 1}'),
    ({"required": ["a"]}, '{"a": 1}', '{"b": 1}'),
    ({"additionalProperties": S}, '{"a": "b"}', '{"a": 1}'),
    ({"patternProperties": {"^a": S}}, '{"b": 1}', '{"a": 1}'),
    ({"minProperties": 1}, '{"a": 1}', "{}"),
    ({"maxProperties": 1}, '{"a": 1}', '{"a": 1, "b": 2}'),
    ({"items": S}, '["a"]', "[1]"),
    ({"items": [S], "additionalItems": False}, '["a"]', '["a", 1]'),
    ({"prefixItems": [S]}, '["a", 1]', "[1]"),
    ({"minItems": 1}, "[1]", "[]"),
    ({"maxItems": 1}, "[1]", "[1, 2]"),
    ({"minLength": 2}, '"ab"', '"a"'),
    ({"maxLength": 1}, '"a"', '"ab"'),
    ({"pattern": "b"}, '"abc"', '"ac"'),
    ({"format": "ipv4"}, '"1.2.3.4"', '"1.2.3.400"'),
    ({"minimum": 3}, "3", "2"),
    ({"maximum": 3}, "3", "4"),
    ({"exclusiveMinimum": 3}, "4", "3"),
    ({"exclusiveMaximum": 3}, "2", "3"),
    ({"minimum": 3, "exclusiveMinimum": True}, "4", "3"),
    ({"multipleOf": 3}, "6", "7"),
    ({"type": "string", "nullable": True}, "null", "1"),
    ({"enum": ["a"], "nullable": True}, "null", '"b"'),
    ({"$ref": "#/$defs/x", "$defs": {"x": S}, "nullable": True}, "null", "1"),
    ({"oneOf": [S, {"type": "array"}], "nullable": True}, "null", "1"),
    ({"not": False, **S}, '"a"', "1"),
    ({"propertyNames": {"enum": ["a", "b"]}}, '{"a": 1}', '{"c": 1}'),
    ({"propertyNames": {"pattern": "^x-"}}, '{"x-a": 1}', '{"a": 1}'),
    ({"uniqueItems": True, "items": {"enum": ["a", "b"]}}, '["b", "a"]', '["a", "a"]'),
    ({"properties": {"a": S}, "unevaluatedProperties": False}, '{"a": "b"}', '{"b": 1}'),
    ({"prefixItems": [S], "unevaluatedItems": False}, '["a"]', '["a", 1]'),
    ({"pattern": "^(?=.*[0-9]).{2}$"}, '"a1"', '"ab"'),
    ({"pattern": "^(?!admin).+$"}, '"user"', '"administrator"'),
    ({"format": "path", "pattern": "^/"}, '"/a"', '"a"'),
    ({"format": "date"}, '"2024-02-29"', '"2021-02-29"'),
    ({"format": "date-time"}, '"2021-02-28T22:59:59Z"', '"2021-02-28T22:59:60Z"'),
    ({"format": "hostname"}, '"a.example"', f'"{"a." * 126}com"'),
    ({"pattern": "^\\s$"}, '"\ufeff"', '"a"'),
    ({"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/d"}], **CATS}, CAT, '{"kind": "cow"}'),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "null", "1"),
]
ENFORCED = {key for schema, *_ in ENFORCED_CASES for key in schema} | {"$anchor"}
NODE = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}


REFUSED_CASES: list[tuple[Any, str]] = [
    ({"type": "array", "uniqueItems": True}, "'uniqueItems' is supported for items of a short"),
    (
        {"properties": {"a": {"items": {"uniqueItems": True}}}},
        "'uniqueItems' in properties.a.items",
    ),
    ({"properties": {"a": {"not": S}}}, "'not' in properties.a is not supported"),
    ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, "options 0 and 1 of 'oneOf'"),
    (
        {"items": {"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/c"}]}, **CATS},
        "options 0 and 1 of 'oneOf' in items",
    ),
    ({"type": "string", "pattern": "(?<=a)b"}, "look-behind"),
    ({"type": "string", "pattern": r"(a)\1"}, "the pattern"),
    ({"$ref": "#/$defs/x"}, "'$ref' to '#/$defs/x' leads to nothing within the schema"),
    ({"enum": list(range(100_000))}, "it is too large or too complex"),
    ({"const": "a" * 30_000}, "30002 characters of fixed text are more than 20000"),
    ({"type": "string", "pattern": "(" * 5000 + ")" * 5000}, "nest"),
    ({"not": S, "x-guidance": {"lenient": True}}, "'not'"),
    ({"properties": {"a/b": {"contains": S}}}, """'contains' in properties["a/b"]"""),
    ({"properties": {"a": {"requried": ["x"]}}}, "'requried' in properties.a"),
    ({"requird": ["x"]}, "did you mean 'required'?"),
    ({"additonalProperties": False}, "did you mean 'additionalProperties'?"),
    ({"additional_properties": False}, "did you mean 'additionalProperties'?"),
    ({"type": "integer", "min": 1}, "did you mean 'minimum'?"),
    ({"type": "integer", "max": 1}, "did you mean 'maximum'?"),
    ({"type": "array", "item": {}}, "did you mean 'items'?"),
    ({"type:": "string"}, "did you mean 'type'?"),
    ({"type": "strnig"}, "'strnig' is not a type"),
    ({"extends": {"type": "string"}}, "'extends' is not supported"),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, "'if' is not supported"),
    ({"dependencies": {"a": ["b"]}}, "'dependencies' is not supported"),
    ({"type": "object", "minProperties": 2}, "'minProperties' is not supported"),
    ({"properties": {"a": 5}}, "5 in properties.a is not a schema"),
    ({"$ref": "http://[x#/a"}, "'$ref' to 'http://[x#/a' leads to nothing"),
    ({"$ref": f"#/anyOf/{'9' * 5000}", "anyOf": [{}]}, "leads to nothing"),
    (
        {"uniqueItems": True, "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": [["b"]]}}},
        "'uniqueItems' is supported for items of a short",
    ),
    ({"pattern": f"a{{1,{'9' * 5000}}}"}, "the pattern is too complex"),
    ({"pattern": r"\x-1"}, "an escape that is not hexadecimal"),
    ({"pattern": r"\u{1_0}"}, "an escape that is not hexadecimal"),
    ({"pattern": r"\uDBFF\uFFFF"}, "an escape of half a character"),
    ({"pattern": r"\uD83D\u0041"}, "an escape of half a character"),
    ({"pattern": r"\uD83D" * 2000}, "an escape of half a character"),
]
# However it is hidden, no value of these has an end.
ENDLESS: list[dict[str, Any]] = [
    {"not": {}},
    {"$ref": "#"},
    {"anyOf": [{"$ref": "#"}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/$defs/a", "$defs": {"a": NODE}},
    {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
            "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
        },
    },
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
    {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
    {"allOf": [{"$ref": "#/$defs/a"}, {"title": "x"}], "$defs": {"a": NODE}},
    {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"anyOf": [NODE, {"type": "array", "items": NODE, "minItems": 2}]}},
    },
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"type": "object", "propertyNames": False, "minProperties": 1},
    {
        "type": "object",
        "propertyNames": {"enum": ["a"]},
        "properties": {"a": False},
        "minProperties": 1,
    },
    {"type": "array", "minItems": 2, "maxItems": 1},
    {"enum": []},
    {"type": "string", "enum": [1, 2]},
]


@pytest.mark.parametrize(("schema", "words"), REFUSED_CASES, ids=lambda value: str(value)[:40])
def test_what_cannot_be_enforced_is_named(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_grammar(JsonFormat(schema))
    assert words in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_what_no_finite_value_satisfies_is_refused(schema: dict[str, Any]) -> None:
    for opens_final in (False, True):
        with pytest.raises(UsageError, match="no finite value satisfies it"):
            compile_grammar(JsonFormat(schema), opens_final=opens_final)


@pytest.mark.parametrize("keyword", sorted(KEYWORDS - ENFORCED - NOTES))
def test_every_other_keyword_of_json_schema_is_refused(keyword: str) -> None:
    """Together with what makes it count, as `if` does for `then`."""
    other = {"minContains": "contains", "maxContains": "contains", "then": "if", "else": "if"}
    value: Any = 2 if keyword in ("minContains", "maxContains") else {"x": {"type": "string"}}
    demand = {keyword: value, other.get(keyword, "title"): {"required": ["y"]}}
    if keyword in ("then", "else", "contains", "not", "if", "propertyNames"):
        demand |= {keyword: {"required": ["x"]}, **({"then": False} if keyword == "if" else {})}
    for schema in (demand, {"items": demand}):
        with pytest.raises(UsageError, match="is not supported"):
            compile_grammar(JsonFormat(schema))


@pytest.mark.parametrize("draft", ["draft-04", "none"])
def test_every_keyword_counts_in_every_draft(
    masks: MaskCompiler, vocabulary: Vocabulary, draft: str
) -> None:
    """One schema each, an answer that it allows, and one that it does not."""
    for schema, good, bad in ENFORCED_CASES:
        if draft != "none":
            schema = {"$schema": f"http://json-schema.org/{draft}/schema#", **schema}
        grammar = compile_grammar(JsonFormat(schema), opens_final=True)
        assert accepts(masks, vocabulary, grammar, good + "<|return|>"), (schema, good)
        assert not accepts(masks, vocabulary, grammar, bad + "<|return|>"), (schema, bad)


def test_notes_and_what_demands_nothing_pass() -> None:
    idle: dict[str, Any] = {
        "uniqueItems": False, "propertyNames": {"type": "string"}, "minContains": 0,
        "dependentRequired": {}, "dependentSchemas": {}, "dependencies": {}, "not": {"not": {}},
        "if": {"required": ["x"]}, "unevaluatedProperties": True, "format": "nonsense",
    }  # fmt: skip
    notes = dict.fromkeys((*NOTES, "x-order", "discriminator"), "a note")
    compile_grammar(JsonFormat({**notes, "properties": {"a": notes | idle}}))


@pytest.mark.parametrize("note", [{"$id": "http://[x#/a"}, {"propertyNames": {"format": ["x"]}}])
def test_a_note_may_be_malformed(note: dict[str, Any]) -> None:
    compile_grammar(JsonFormat({"$ref": "#/$defs/a", "$defs": {"a": S}} | note))


@pytest.mark.parametrize("keyword", VENDORS_NOTES)
def test_a_vendors_notes_change_nothing(
    masks: MaskCompiler, vocabulary: Vocabulary, keyword: str
) -> None:
    note = {keyword: VENDORS_NOTES[keyword]}
    person = {
        "type": "object",
        "properties": {"name": S | note, "ages": {"type": "array", "items": {"type": "integer"}}},
        "required": ["name"],
        "additionalProperties": False,
    }
    grammar = compile_grammar(JsonFormat(person | note), opens_final=True)
    assert accepts(masks, vocabulary, grammar, '{"name": "Bo", "ages": [4]}<|return|>')
    assert not accepts(masks, vocabulary, grammar, '{"name": 4}<|return|>')


def test_the_tool_is_named() -> None:
    tool = Tool("odd", "", {"properties": {"path": {"contains": S}}}, strict=True)
    with pytest.raises(UsageError) as caught:
        compile_grammar(None, [Tool("any"), tool])
    assert caught.value.message == (
        "the parameters of the tool 'odd' cannot be enforced: "
        "'contains' in properties.path is not supported"
    )
