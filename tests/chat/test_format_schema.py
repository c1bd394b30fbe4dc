"""Schemas of formats: every keyword is enforced or refused, by its name and place."""

import re
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.chat import JsonFormat, Tool, Vocabulary
from gptoss_local.chat.grammar import compile_grammar
from gptoss_local.engine.mask import MaskCompiler
from gptoss_local.errors import UsageError
from tests.chat.test_grammar import accepts


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
}  # fmt: skip
S = {"type": "string"}
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
]
ENFORCED = {key for schema, *_ in ENFORCED_CASES for key in schema} | {"$anchor"}


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"properties": {"a": {"not": {}}}}, "not"),
        ({"type": "string", "format": "nonsense"}, "nonsense"),
        ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, "oneOf"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"$ref": "#/$defs/x"}, "/$defs/x"),
        ({"enum": list(range(100_000))}, "too big"),
        ({"type": "string", "pattern": "(" * 5000 + ")" * 5000}, "nest"),
        ({"not": {}, "x-guidance": {"lenient": True}}, "not"),
        (
            {"properties": {"a/b": {"items": {"uniqueItems": True}}}},
            "#/properties/a~1b/items: 'uniqueItems'",
        ),
        ({"$defs": {"x": {"nullable": True}}, "$ref": "#/$defs/x"}, "#/$defs/x: 'nullable'"),
        ({"properties": {"a": {"requried": ["x"]}}}, "#/properties/a: 'requried'"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "contains": {}}, "#: 'contains'"),
        (
            {"anyOf": [True, {"properties": {"d": {"format": "nonsense"}}}]},
            "#/anyOf/1/properties/d: ",
        ),
        (
            {"$defs": {"x": {"pattern": "(?=a)"}}, "items": {"$ref": "#/$defs/x"}},
            "#/$defs/x: regex",
        ),
        ({"type": "object", "minProperties": 2}, "minProperties"),
    ],
)
def test_what_cannot_be_enforced_is_named(schema: dict[str, Any], keyword: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_grammar(JsonFormat(schema))
    assert keyword in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("keyword", sorted(KEYWORDS - ENFORCED - NOTES))
def test_every_other_keyword_of_json_schema_is_refused(keyword: str) -> None:
    for schema in ({keyword: {"x": 3}}, {"items": {keyword: 3, "type": "string"}}):
        with pytest.raises(UsageError, match=re.escape(f"'{keyword}' is not supported")):
            compile_grammar(JsonFormat(schema))


@pytest.mark.parametrize("draft", ["draft-04", "draft-07", "2020-12", "none"])
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
    idle = {"uniqueItems": False, "propertyNames": {"type": "string"}, "minContains": 0}
    notes = dict.fromkeys((*NOTES, "x-order", "discriminator"), "a note")
    compile_grammar(JsonFormat({**notes, "properties": {"a": notes | idle}}))


def test_the_tool_is_named() -> None:
    tool = Tool("odd", "", {"properties": {"a": {"format": "nonsense"}}}, strict=True)
    with pytest.raises(UsageError, match="odd#/properties/a: Unknown format"):
        compile_grammar(None, [Tool("any"), tool])
