"""Schemas of formats: every keyword is enforced or refused, by its name and place."""

import json
import time
from typing import Any

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import JsonFormat, Tool
from gptoss_local.harmony.grammar import compile_grammar
from tests.chat.conftest import Accepts

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
# Schemas that editors, form builders and code generators write into real schemas.
VENDORS_NOTES: dict[str, Any] = {
    "readonly": True, "name": "a", "links": [], "version": 2, "comment": "x", "javaType": "a.B",
    "propertyOrder": 1, "alias": "b", "enumNames": ["A"], "errorMessage": {"type": "no"},
    "defaultSnippets": [{"body": {}}], "order": 3, "options": {"hidden": True}, "label": "A",
    "ui:widget": "x", "x-order": 1, "$async": True, "strict": True, "optional": True, "note": "y",
    "values": [1], "@type": "x", "_type": "x", "ui:type": "x", "extends": "Base", "_id": "5",
    "$generated": "now", "self": {"vendor": "v"}, "id": "/a", "example": "a", "xml": {},
    "discriminator": {"propertyName": "kind"}, "externalDocs": {},
}  # fmt: skip
S = {"type": "string"}
A = {"properties": {"k": {"const": "a"}}, "required": ["k"]}
B = {"properties": {"k": {"const": "b"}}, "required": ["k"]}
KINDS = {"$defs": {"a": {"type": "object", **A}, "b": {"type": "object", **B}}}
ENFORCED_CASES: list[tuple[dict[str, Any], str, str]] = [
    (S | {"discriminator": {"propertyName": "k"}}, '"a"', "1"),
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
    ({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], **KINDS}, '{"k": "b"}', "{}"),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "null", "1"),
    # names of properties
    ({"propertyNames": {"maxLength": 1}}, '{"b": 1}', '{"ab": 1}'),
    ({"propertyNames": {"pattern": "^a"}, "properties": {"b": S}}, '{"ab": 1}', '{"b": "c"}'),
    ({"propertyNames": {"pattern": "^a"}, "properties": {"a": S}}, '{"a": "c"}', '{"a": 1}'),
    ({"propertyNames": {"const": "a"}, "required": ["a"]}, '{"a": 1}', "{}"),
    ({"propertyNames": {"maxLength": 1}, "unevaluatedProperties": False, "properties": {"a": S}},
     '{"a": "b"}', '{"b": "c"}'),
    ({"propertyNames": {"enum": ["a", "bc"], "maxLength": 1}, "additionalProperties": S},
     '{"a": "b"}', '{"bc": "d"}'),
    # options that the keywords around them tell apart
    ({"type": "object", "oneOf": [A, B]}, '{"k": "b"}', '{"k": "c"}'),
    ({"type": "integer", "oneOf": [{"maximum": 3}, {"minimum": 4}]}, "4", "4.5"),
    ({"allOf": [{"type": "object", "required": ["k"]}],
      "oneOf": [{"properties": A["properties"]}, {"properties": B["properties"]}]},
     '{"k": "a"}', "{}"),
    ({"allOf": [{"oneOf": [{"minLength": 3}, {"maxLength": 2}]}, {"type": "string"}]},
     '"abc"', "5"),
    ({"oneOf": [{"type": "string", "pattern": p} for p in ("^a", "^b")]}, '"b"', '"c"'),
    ({"anyOf": [{"type": "number"}, {"type": "boolean"}], "type": "number",
      "oneOf": [{"exclusiveMaximum": 0, "type": "number"}, {"minimum": 0}]}, "1", "true"),
    ({"properties": {"x": {"type": "array", "oneOf": [{"maxItems": 1}, {"minItems": 2}]}}},
     '{"x": [1, 2]}', '{"x": 1}'),
    ({"oneOf": [{"$ref": "#/$defs/n"}, {"type": "integer", "minimum": 5}],
      "$defs": {"n": {"oneOf": [{"const": 1}, {"const": 2}]}}}, "2", "3"),
]  # fmt: skip
ENFORCED = {key for schema, *_ in ENFORCED_CASES for key in schema} | {"$anchor"}
NODE = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}


REFUSED_CASES: list[tuple[Any, str]] = [
    ({"type": "array", "uniqueItems": True}, "'uniqueItems' is supported for items of a short"),
    ({"properties": {"a": {"items": {"uniqueItems": True}}}},
     "'uniqueItems' in properties.a.items"),
    ({"properties": {"a": {"not": S}}}, "'not' in properties.a is not supported"),
    ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, "options 0 and 1 of 'oneOf'"),
    ({"items": {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}, **KINDS},
     "options 0 and 1 of 'oneOf' in items"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "options 0 and 1"),
    ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "options 0 and 1"),
    ({"oneOf": [A, B]}, "options 0 and 1"),  # a number may be both
    ({"oneOf": [{"$ref": "#/$defs/n"}, {"const": 2}], "$defs": {"n": {"enum": [1, 2]}}},
     "options 0 and 1"),
    ({"oneOf": [{"pattern": "^a", "type": "string"}, {"pattern": "b$", "type": "string"}]},
     "options 0 and 1"),
    ({"type": "integer", "anyOf": [{"oneOf": [{"maximum": 4}, {"minimum": 4}]}]},
     "options 0 and 1"),
    ({"type": "string", "pattern": "(?<=a)b"}, "look-behind"),
    ({"pattern": "^(?!(?:ab)+)a"}, "the pattern has negative look-ahead"),
    ({"pattern": "^(?=a)b|c"}, "the pattern has look-ahead next to '|'"),
    ({"patternProperties": {"^(?=a)b": {}}}, "has look-ahead, which names cannot have"),
    ({"properties": {"a": {"pattern": r"\bx"}}}, "a word boundary ('\\b') in properties.a"),
    ({"pattern": "(a{1000}){1000}"}, "the pattern needs more than 20000 characters"),
    ({"pattern": "a*", "minLength": 30_000}, "'minLength' is more than 20000"),
    ({"properties": {"a": {"minItems": -1}}}, "'minItems' in properties.a must not be -1"),
    ({"items": {"properties": [S]}}, "'properties' in items must not be"),
    ({"contains": {}, "minContains": 0, "unevaluatedItems": False}, "'unevaluatedItems'"),
    ({"type": "string", "pattern": r"(a)\1"}, "a pattern that refers back"),
    ({"$ref": "#/$defs/x"}, "'$ref' to '#/$defs/x' leads to nothing within the schema"),
    ({"enum": list(range(100_000))}, "it is too large or too complex"),
    ({"type": "string", "pattern": "(" * 5000 + ")" * 5000}, "nest"),
    ({"not": S, "x-guidance": {"lenient": True}}, "'not'"),
    ({"properties": {"a/b": {"contains": S}}}, """'contains' in properties["a/b"]"""),
    ({"properties": {"a": {"requried": ["x"]}}}, "'requried' in properties.a"),
    ({"additonalProperties": False}, "did you mean 'additionalProperties'?"),
    ({"type": "integer", "min": 1}, "did you mean 'minimum'?"),
    ({"type": "array", "item": {}}, "did you mean 'items'?"),
    ({"type:": "string"}, "did you mean 'type'?"),
    ({"type": "strnig"}, "Invalid type: strnig"),
    ({"extends": {"type": "string"}}, "'extends' is not supported"),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, "'if' is not supported"),
    ({"dependencies": {"a": ["b"]}}, "'dependencies' is not supported"),
    ({"type": "object", "minProperties": 2}, "'minProperties' is not supported"),
    ({"properties": {"a": 5}}, "5 in properties.a is not a schema"),
    ({"$ref": "http://[x#/a"}, "'$ref' to 'http://[x#/a' leads to nothing"),
    ({"$ref": f"#/anyOf/{'9' * 5000}", "anyOf": [{}]}, "leads to nothing"),
    ({"uniqueItems": True, "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": [["b"]]}}},
     "'uniqueItems' is supported for items of a short"),
    ({"pattern": f"a{{1,{'9' * 5000}}}"}, "not a regular expression: decimal literal"),
    ({"pattern": r"\x-1"}, "invalid hexadecimal digit"),
    ({"pattern": r"\uDBFF\uFFFF"}, "not a Unicode scalar value"),
    ({"pattern": "a)"}, "not a regular expression: unopened group"),
    ({"const": "ab" * 50_000}, "a text has more than 20000 characters"),
    ({"patternProperties": {"^(a{300}){300}$": True}}, "needs more than 20000 characters"),
]  # fmt: skip
# However it is hidden, no value of these has an end.
ENDLESS: list[dict[str, Any]] = [
    {"not": {}},
    {"$ref": "#"},
    {"anyOf": [{"$ref": "#"}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/$defs/a", "$defs": {"a": NODE}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": NODE, "minItems": 1}}},
    {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
    {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
    {"allOf": [{"$ref": "#/$defs/a"}, {"title": "x"}], "$defs": {"a": NODE}},
    {"$ref": "#/$defs/a",
     "$defs": {"a": {"anyOf": [NODE, {"type": "array", "items": NODE, "minItems": 2}]}}},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"type": "object", "propertyNames": False, "minProperties": 1},
    {"type": "object", "propertyNames": {"enum": ["a"]}, "properties": {"a": False},
     "minProperties": 1},
    {"type": "array", "minItems": 2, "maxItems": 1},
    {"type": "string", "enum": [1, 2]},
]  # fmt: skip


@pytest.mark.parametrize(("schema", "words"), REFUSED_CASES, ids=lambda value: str(value)[:40])
def test_refusals_name_the_keyword(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_grammar(JsonFormat(schema))
    assert words in caught.value.message
    assert len(caught.value.message) < 400
    assert "options 0 and 1" not in words or "anyOf" in caught.value.hint


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_endless_schemas_are_refused(schema: dict[str, Any]) -> None:
    for opens_final in (False, True):
        with pytest.raises(UsageError, match="no finite value satisfies it"):
            compile_grammar(JsonFormat(schema), opens_final=opens_final)


@pytest.mark.parametrize("keyword", sorted(KEYWORDS - ENFORCED - NOTES))
def test_every_other_keyword_of_json_schema_is_refused(keyword: str) -> None:
    """Together with the keyword that it depends on, as `then` does on `if`."""
    other = {"minContains": "contains", "maxContains": "contains", "then": "if", "else": "if"}
    value: Any = 2 if keyword in ("minContains", "maxContains") else {"x": {"type": "string"}}
    demand = {keyword: value, other.get(keyword, "title"): {"required": ["y"]}}
    if keyword in ("then", "else", "contains", "not", "if", "propertyNames"):
        demand |= {keyword: {"required": ["x"]}, **({"then": False} if keyword == "if" else {})}
    for schema in (demand, {"items": demand}):
        with pytest.raises(UsageError, match="is not supported"):
            compile_grammar(JsonFormat(schema))


@pytest.mark.parametrize("draft", ["draft-04", "none"])
def test_every_keyword_counts_in_every_draft(accepts: Accepts, draft: str) -> None:
    """One schema each, an answer that it allows, and one that it does not."""
    for schema, good, bad in ENFORCED_CASES:
        if draft != "none":
            schema = {"$schema": f"http://json-schema.org/{draft}/schema#", **schema}
        grammar = compile_grammar(JsonFormat(schema), opens_final=True)
        assert accepts(grammar, good + "<|return|>"), (schema, good)
        assert not accepts(grammar, bad + "<|return|>"), (schema, bad)


def test_notes_and_idle_keywords_pass() -> None:
    idle: dict[str, Any] = {
        "uniqueItems": False, "propertyNames": {"type": "string"}, "minContains": 0,
        "dependentRequired": {}, "dependentSchemas": {}, "dependencies": {}, "not": {"not": {}},
        "if": {"required": ["x"]}, "unevaluatedProperties": True, "format": "nonsense",
    }  # fmt: skip
    notes = dict.fromkeys((*NOTES, "x-order", "discriminator"), "a note")
    compile_grammar(JsonFormat({**notes, "properties": {"a": notes | idle}}))


def test_vendors_notes_change_nothing(accepts: Accepts) -> None:
    person = {
        "type": "object",
        "properties": {
            "name": S | VENDORS_NOTES,
            "ages": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    grammar = compile_grammar(JsonFormat(person | VENDORS_NOTES), opens_final=True)
    assert accepts(grammar, '{"name": "Bo", "ages": [4]}<|return|>')
    assert not accepts(grammar, '{"name": 4}<|return|>')


def test_the_tool_is_named() -> None:
    tool = Tool("odd", "", {"properties": {"path": {"contains": S}}}, strict=True)
    with pytest.raises(UsageError) as caught:
        compile_grammar(None, [Tool("any"), tool])
    assert caught.value.message == (
        "the parameters of the tool 'odd' cannot be enforced: "
        "'contains' in properties.path is not supported"
    )


# As JavaScript reads them. Rust's `.`, `\s` and `[]` differ, and it has no look-ahead.
PATTERNS: list[tuple[str, list[str], list[str]]] = [
    ("^.$", ["a", "é"], ["\r", "\n", "\u2028"]),
    (r"^\s$", ["\ufeff", " "], ["\u0085"]),
    (r"^\S$", ["\u0085"], ["\ufeff", " "]),
    (r"^[^\s]$", ["\u0085"], ["\ufeff"]),
    ("^[^]$", ["a", "\n"], ["ab"]),
    ("^[a&&b]$", ["a", "&"], ["c"]),
    ("^[[:alpha:]]$", [":]", "a]"], ["b"]),
    ("^[+--]$", ["+", ",", "-"], ["a"]),
    (r"^[\b]$", ["\b"], ["b"]),
    (r"^[\d-x]$", ["1", "-", "x"], ["a", "5x"]),
    (r"^\d\w$", ["1_"], ["\u0661a", "1é"]),
    ("^a{,2}$", ["a{,2}"], ["aa"]),
    ("^{a}$", ["{a}"], ["a"]),
    (r"^\<a\>\0$", ["<a>\0"], ["a0"]),
    (r"^a/b\/$", ["a/b/"], ["ab"]),
    ("^\n$", ["\n"], ["n"]),
    ("(?i)^ab$", ["AB"], ["c"]),
    ("(?s)^.$", ["\n"], ["ab"]),
    ("^a|b$", ["ax", "xb"], ["xax"]),
    ("^(?=.*[0-9])(?=a|b).{2}$", ["a1", "b2"], ["ab", "c1"]),
    ("^(?!admin).+$", ["user", "adm", "admix"], ["admin", "administrator"]),
    ("^(?!ab$).*$", ["abc", "a", ""], ["ab"]),
    ("^(?!a|[bc])d?", ["d", "", "e"], ["a", "cd"]),
    (r"^(?!\d)\w+$", ["a1"], ["1a"]),
    (r"^(?!\.)(?!.*\.\.)[a-z.]+@x$", ["a.b@x"], ["a..b@x", ".a@x"]),
    (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", ["1", "+1.5", "0."], ["", ".", "+"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), PATTERNS)
def test_patterns_mean_the_same_as_in_javascript(
    accepts: Accepts, pattern: str, good: list[str], bad: list[str]
) -> None:
    schema = {"type": "string", "pattern": pattern}
    grammar = compile_grammar(JsonFormat(schema), opens_final=True)
    for is_good, texts in ((True, good), (False, bad)):
        for text in texts:
            answer = json.dumps(text, ensure_ascii=False) + "<|return|>"
            assert accepts(grammar, answer) == is_good, text


def node(i: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{i}"}}}


def nested(depth: int) -> dict[str, Any]:
    return {"items": nested(depth - 1)} if depth else S


WORDS = [{"pattern": f"a{i}.*b.*{i}"} for i in range(40)]
# llguidance would take minutes for these, or all of its stack, which ends the process.
TOO_MUCH: list[tuple[dict[str, Any], str]] = [
    ({"allOf": WORDS}, "joins too many schemas with patterns"),
    ({"allOf": [{"properties": {"x": word}} for word in WORDS]}, "joins too many schemas"),
    ({"patternProperties": {f"^{i}_": {} for i in range(500)}}, "has too many patterns"),
    ({"$ref": "#/$defs/0", "$defs": {str(i): node(i + 1) for i in range(4000)} | {"4000": S}},
     "nests too deep"),
    (nested(500), "nests too deep"),
    ({"allOf": [{"anyOf": [{"required": [f"{c}{i}"]} for c in "abc"]} for i in range(14)]},
     "too large or too complex"),
]  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize(("schema", "words"), TOO_MUCH, ids=lambda value: str(value)[:40])
def test_schemas_too_heavy_for_llguidance_are_refused_at_once(
    schema: dict[str, Any], words: str
) -> None:
    start_s = time.monotonic()
    with pytest.raises(UsageError, match=words):
        compile_grammar(JsonFormat(schema))
    assert time.monotonic() - start_s < 5


@pytest.mark.timing
def test_large_schemas_of_real_programs_pass() -> None:
    start_s = time.monotonic()
    noted = {"type": "string", "markdownDescription": "x", "enumDescriptions": []}
    models = {
        f"Model{i}": {
            "type": "object",
            "properties": {"kind": {"const": f"model{i}"}, "value": {"type": "integer"}},
            "required": ["kind"],
        }
        for i in range(500)
    }
    for schema in (
        {"properties": {f"a{i}": noted for i in range(2500)}},
        {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in models], "$defs": models},
        {"properties": {f"a{i}": word for i, word in enumerate(WORDS)}},
        nested(25),
        {"type": "string", "maxLength": 100_000},
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T(\d{2}:){2}\d{2}$"},
        {"enum": [f"value {i}" for i in range(5000)]},
    ):
        assert compile_grammar(JsonFormat(schema))
    assert time.monotonic() - start_s < 20
