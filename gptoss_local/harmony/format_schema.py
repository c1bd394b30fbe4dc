"""Translates a client's JSON schema into keywords that llguidance enforces, or raises.

Demands are enforced or refused by name and place; keywords of no draft are annotations. Source:
JSON Schema 2020-12, OpenAPI 3.0 (`nullable`), llguidance's docs/json_schema.md.
"""

import difflib
import functools
import itertools
import json
import math
import re
from typing import Any, NoReturn

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import guidance
from gptoss_local.harmony.pattern import LENGTH_MAX, literal, read_pattern
from gptoss_local.harmony.schema_document import Document, Schema, Target, step, within

NATIVE = frozenset({"duration", "email", "ipv4", "uri"})

# Year 0 exists for RFC 3339 only, and few programs read it.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
# Without leap seconds: when there are some is not in the text, and few programs read them.
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:[0-5][0-9](?:[.][0-9]+)?(?:[zZ]|[+-]{_CLOCK})"
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HEX = "[0-9a-fA-F]{1,4}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LAST_32_BITS = f"(?:{_HEX}:{_HEX}|(?:{_BYTE}[.]){{3}}{_BYTE})"


def _ipv6() -> str:
    full = f"(?:{_HEX}:){{6}}{_LAST_32_BITS}"
    options = [full, f"(?:{_HEX}(?::{_HEX}){{0,6}})?::", f"(?:{_HEX}(?::{_HEX}){{0,5}})?::{_HEX}"]
    for n in range(6):  # groups before `::`
        before = f"{_HEX}(?::{_HEX}){{{n - 1}}}" if n else ""
        options.append(f"{before}::(?:{_HEX}:){{0,{5 - n}}}{_LAST_32_BITS}")
    return "|".join(options)


PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[tT]{_TIME}$",
    "hostname": f"^(?=[^]{{0,253}}$){_LABEL}(?:[.]{_LABEL})*$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "ipv6": f"^(?:{_ipv6()})$",
}
"""Patterns by format. llguidance has `uuid`, too, but names of properties may be one."""

IMPLIED = {
    "duration": r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?"
    r"(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
}
"""Patterns that zod sends with a format, which demands more."""


_ENFORCED = {
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "nullable", "properties",
    "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
    "maxProperties", "items", "prefixItems", "additionalItems", "minItems", "maxItems",
    "uniqueItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "unevaluatedProperties",
    "unevaluatedItems",
}  # fmt: skip
_NOT_ENFORCED = {
    "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired",
    "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef", "divisibleBy", "disallow",
    "extends",
}  # fmt: skip
# These are no slip of another keyword, either. The last four are OpenAPI's.
_NOTES = {
    "$schema", "$vocabulary", "$comment", "$id", "id", "$anchor", "$dynamicAnchor",
    "$recursiveAnchor", "$defs", "definitions", "title", "description", "default", "examples",
    "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema",
    "example", "discriminator", "externalDocs", "xml",
}  # fmt: skip
_KNOWN = _ENFORCED | _NOT_ENFORCED | _NOTES
_BY_PLAIN = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in _KNOWN}
_BY_PLAIN |= {"min": "minimum", "max": "maximum", "item": "items", "prop": "properties"}
_IN_PLACE = {"$ref", "allOf", "anyOf", "oneOf", "contains"}
_NOT_ARRAYS = ("null", "boolean", "number", "string", "object")
_COUNTS = {
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
}  # fmt: skip
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
# These are read after the keywords that they say something about, in this order.
_LAST = ("unevaluatedItems", "unevaluatedProperties", "uniqueItems", "propertyNames")

_EXACT_MAX = 2**53  # llguidance reads numbers as floats
_COUNT_MAX = 2**31 - 1
# Beyond these llguidance fails. A bound that is further off becomes one of them, and is kept, too.
_NUMBER_MAX = 10**18 - 1
_INTEGER_MAX = 2**63 - 1
ROOT = "0"  # the name of a schema's definition
_N_LISTS_MAX = 500  # of unique items: all of 5 values take 326; more are too much for llguidance
_N_NAME_PATTERNS_MAX = 100  # llguidance compares each with each, in 0.1 s
_N_PARTS_MAX = 50_000  # llguidance takes no more
_DEPTH_MAX = 60  # levels of parts and references: a small stack of llguidance takes 80
_N_REFERENCES_MAX = 20  # from one to the next
TOO_DEEP = "it nests too deep"
# What the keyword depends on; without that it demands nothing.
_DEPENDS_ON = {
    "if": {"then", "else"}, "then": {"if"}, "else": {"if"},
    "minContains": {"contains"}, "maxContains": {"contains"},
}  # fmt: skip


class Enforced:
    """A schema in keywords that llguidance knows.

    Its parts come with their places, inner ones first. `n_joined` counts schemas that hold of one
    value together with others.
    """

    def __init__(self, root: Any, subject: str) -> None:
        self._subject = subject
        self._names: dict[str, str] = {}  # of definitions, by place
        self._heights: dict[str, int] = {}  # of definitions, in levels
        self._deepest = 0
        self.definitions: Schema = {}
        self.parts: list[tuple[Schema, str]] = []
        self.patterns: set[str] = set()
        self.n_joined = self.n_name_patterns = 0
        self.document = Document(root)
        self.refer_to(Target(root, ""), 0)

    @property
    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{ROOT}", "$defs": self.definitions}

    def read(self, schema: Any, place: str, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise self.refusal(f"{schema!r:.60}{within(place)} is not a schema")
        self._go_down_to(depth)
        if len(self.parts) > _N_PARTS_MAX:
            raise self.refusal("it is too large or too complex")
        return _Reading(self, schema, place, depth).read()

    def refer_to(self, target: Target, depth: int) -> str:
        """Return a reference to the definition of a part, which is read where it is first met."""
        name = self._names.setdefault(target.place, str(len(self._names)))
        if name not in self._heights:
            self._heights[name] = 0  # within itself it is not followed again
            around, self._deepest = self._deepest, depth
            self.definitions[name] = self.read(*target, depth)
            self._heights[name] = self._deepest - depth
            self._deepest = max(around, self._deepest)
        self._go_down_to(depth + self._heights[name])
        return f"#/$defs/{name}"

    def _go_down_to(self, depth: int) -> None:
        """Count levels as if each part was met in the order that llguidance happens to take."""
        self._deepest = max(self._deepest, depth)
        if depth > _DEPTH_MAX:
            raise self.refusal(TOO_DEEP)

    def refusal(self, problem: str, hint: str = "") -> UsageError:
        return UsageError(
            f"{self._subject} cannot be enforced: {problem}",
            hint=hint or "Leave that out of the JSON schema, or say it in another way.",
        )


class _Reading:
    def __init__(self, whole: Enforced, schema: Schema, place: str, depth: int) -> None:
        self._whole = whole
        self._schema = schema
        self._place = place
        self._depth = depth + 1 + (schema.get("nullable") is True)  # of its parts
        self._out: Schema = {}
        self._also: list[Any] = []

    def read(self) -> Any:
        if _is_anything(self._schema.get("not", False)):
            return False
        for keyword in sorted(
            self._schema, key=lambda name: name in _LAST and _LAST.index(name) + 1
        ):
            value = self._schema[keyword]
            if keyword in _ENFORCED:
                if not self._read_parts(keyword, value) and not self._read_value(keyword, value):
                    self.refuse(f"'{keyword}'", f"must not be {value!r:.60}")
            elif keyword in _NOT_ENFORCED:
                if not _is_idle(self._schema, keyword, value):
                    self.refuse(f"'{keyword}'")
            elif meant := _slip(keyword, value):
                why = f"is not a keyword of JSON Schema; did you mean '{meant}'?"
                self.refuse(f"'{keyword}'", why)
        return self._joined()

    def refuse(self, what: str, why: str = "is not supported", way: str = "") -> NoReturn:
        raise self._whole.refusal(f"{what}{within(self._place + way)} {why}")

    def _joined(self) -> Any:
        out = self._out
        if out.get("minProperties", 0) > len(out.get("required", ())) + 1:
            self.refuse("'minProperties'")  # llguidance counts a name that is written twice
        if "oneOf" in out and "anyOf" in out:  # one choice at a time
            self._also.append({"anyOf": out.pop("anyOf")})
        if self._also:
            out["allOf"] = [*out.get("allOf", ()), *self._also]
        n_others = sum(key in out for key in _IN_PLACE) if len(out) > 1 else 0
        self._whole.n_joined += len(out.get("allOf", ())) + n_others
        self._whole.parts.append((out, self._place))
        if self._schema.get("nullable") is True and out:
            return {"anyOf": [out, {"type": "null"}]}
        return out

    def _part(self, schema: Any, way: str) -> Any:
        return self._whole.read(schema, self._place + way, self._depth)

    def _read_parts(self, keyword: str, value: Any) -> bool:
        """Read a keyword for schemas within this one; return whether it is one."""
        way, out = step(keyword), self._out
        match keyword, value:
            case "properties", dict():
                out[keyword] = {name: self._part(v, way + step(name)) for name, v in value.items()}
            case "patternProperties", dict():
                keys = {"".join(self._expressions(name, way + step(name))): name for name in value}
                self._whole.n_name_patterns += len(value)
                if len(keys) < len(value) or self._whole.n_name_patterns > _N_NAME_PATTERNS_MAX:
                    self.refuse(f"'{keyword}'", "has too many patterns, or one twice")
                out[keyword] = {k: self._part(value[n], way + step(n)) for k, n in keys.items()}
            case (("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items"), list()):
                parts = [self._part(part, f"{way}[{i}]") for i, part in enumerate(value)]
                out["prefixItems" if keyword == "items" else keyword] = parts
            case (("items" | "additionalProperties"), _):
                out[keyword] = self._part(value, way)
            case "additionalItems", _:  # as tuples were written before draft 2020-12
                if isinstance(self._schema.get("items"), list):
                    out["items"] = self._part(value, way)
            case (("unevaluatedItems" | "unevaluatedProperties"), _):
                rest = "items" if keyword == "unevaluatedItems" else "additionalProperties"
                if rest not in out and not _is_anything(value):
                    if not _IN_PLACE.isdisjoint(self._schema):  # other schemas have a say
                        self.refuse(f"'{keyword}'")
                    out[rest] = self._part(value, way)
            case "propertyNames", _:
                self._read_names(value)
            case "$ref", _:
                target = self._whole.document.resolve(value, self._schema)
                if target is None:
                    self.refuse(f"'$ref' to {value!r:.60}", "leads to nothing within the schema")
                out[keyword] = self._whole.refer_to(target, self._depth)
            case _:
                return False
        return True

    def _read_value(self, keyword: str, value: Any) -> bool:
        match keyword, value:
            case (
                ("type", str() | list())
                | ("multipleOf", int() | float())
                | ("exclusiveMinimum" | "exclusiveMaximum", bool())  # draft 4
            ):
                self._out[keyword] = value
            case "required", list() if all(isinstance(name, str) for name in value):
                self._out[keyword] = value
            case ("enum", list()) | ("const", _):
                self._check_exact(value)
                self._out[keyword] = value
            case "pattern", str():
                if value != IMPLIED.get(str(self._schema.get("format"))):
                    self._match(value)
            case "format", str():
                if value in NATIVE:
                    self._whole.patterns.add(value)
                    self._out[keyword] = value
                elif value in PATTERNS:
                    self._match(PATTERNS[value])
            case _, int() | float() if keyword in _BOUNDS:
                self._read_bound(keyword, value)
            case (("required" | "nullable"), bool()):  # `required` of draft 3
                pass
            case "uniqueItems", bool():
                if value and self._out.get("maxItems", 2) > 1:
                    self._read_unique()
            case "not", _:
                is_dict = isinstance(value, dict)
                if not _is_anything(value.get("not")) if is_dict else value is not False:
                    self.refuse(f"'{keyword}'")
            case _, int() | float() if keyword in _COUNTS and value >= 0 and value % 1 == 0:
                if keyword == "minLength" and value > LENGTH_MAX:
                    self.refuse(f"'{keyword}'", f"is more than {LENGTH_MAX}")
                self._out[keyword] = int(min(value, _COUNT_MAX))
            case _:
                return False
        return True

    def _match(self, pattern: str) -> None:
        for expression in self._expressions(pattern):
            if "pattern" in self._out:
                self._also.append({"pattern": expression})
            else:
                self._out["pattern"] = expression

    def _expressions(self, pattern: str, way: str = "") -> list[str]:
        try:
            expressions = read_pattern(pattern)
        except ValueError as error:
            self.refuse("the pattern", str(error), way)
        if way and len(expressions) > 1:
            self.refuse("the pattern", "has look-ahead, which names cannot have", way)
        self._whole.patterns.update(expressions)
        return expressions

    def _check_exact(self, value: Any) -> None:
        match value:
            case dict():
                self._check_exact([*value.keys(), *value.values()])
            case list():
                for item in value:
                    self._check_exact(item)
            case float() | int() if abs(value) > _EXACT_MAX:
                self.refuse(f"{value!r:.60}", "is too large a number")
            case str() if len(value) > LENGTH_MAX:
                self.refuse("a text", f"has more than {LENGTH_MAX} characters")

    def _read_bound(self, keyword: str, value: float) -> None:
        sign = 1 if keyword in ("maximum", "exclusiveMaximum") else -1
        is_integer = self._schema.get("type") in ("integer", ["integer"], ["integer", "null"])
        most = _INTEGER_MAX if is_integer and sign > 0 else _NUMBER_MAX
        if value * sign < -_NUMBER_MAX:
            self.refuse(f"'{keyword}'", "is too large a number")
        self._out[keyword] = min(value * sign, most) * sign

    def _read_names(self, value: Any) -> None:
        value = self._followed(value)
        if isinstance(value, dict) and "pattern" in value:  # of zod's, which says more
            value = {key: part for key, part in value.items() if key != "format"}
        names = self._part(value, ".propertyNames")
        if names is False or (names is not True and "string" not in names.pop("type", "string")):
            names = {"enum": []}
        if names in (True, {}):
            return

        def may_be(name: Any) -> bool:
            return guidance.may_exist(guidance.schema_problem({"allOf": [{"const": name}, names]}))

        others = self._out.get("additionalProperties", True)
        named = self._out.get("properties", {})
        given = dict.fromkeys(self._out.get("required", ()), others) | named
        given = {name: part if may_be(name) else False for name, part in given.items()}
        if names.keys() == {"pattern"}:
            pattern = names["pattern"]
        elif names.keys() <= {"minLength", "maxLength"}:
            pattern = f"^(?s:.{{{names.get('minLength', 0)},{names.get('maxLength', '')}}})$"
        elif names.keys() - {"pattern", "minLength", "maxLength"} in ({"enum"}, {"const"}):
            listed = names["enum"] if "enum" in names else [names["const"]]
            rest = [n for n in listed if isinstance(n, str) and n not in given and may_be(n)]
            pattern = f"^(?:{'|'.join(map(literal, rest))})$" if rest else ""
            named = {key: self._schema[key] for key in _IN_PLACE if key in self._schema}
        else:
            self.refuse("'propertyNames'", "is supported for an enum, a pattern or a length only")
        is_joined = named and ("enum" in names or "const" in names or not isinstance(others, bool))
        if "patternProperties" in self._out or is_joined:
            self.refuse("'propertyNames'", "is not supported next to other schemas of properties")
        if pattern and others is not False:
            self._out["patternProperties"] = {pattern: others}
        self._out["properties"] = given
        self._out["additionalProperties"] = False

    def _read_unique(self) -> None:
        """Write out all lists, if there are few, as llguidance has no such keyword."""
        items = self._followed(self._schema.get("items"))
        listed = items if isinstance(items, dict) else {}
        values = [listed["const"]] if "const" in listed else listed.get("enum")
        if listed.get("type") == "boolean":
            values = [False, True]
        if not isinstance(values, list) or "prefixItems" in self._out:
            self.refuse("'uniqueItems'", "is supported for items of a short enum only")
        self._check_exact(values)
        whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
        each = {json.dumps(value, sort_keys=True): value for value in whole}  # 1.0 is written 1
        least, most = self._out.get("minItems", 0), self._out.get("maxItems", _COUNT_MAX)
        sizes = range(least, min(most, len(each)) + 1)
        if sum(math.perm(len(each), n) for n in sizes) > _N_LISTS_MAX:
            why = f"allows more than {_N_LISTS_MAX} lists, which is not supported"
            self.refuse("'uniqueItems'", why)
        rows = [list(row) for n in sizes for row in itertools.permutations(each.values(), n)]
        self._also.append({"anyOf": [{"enum": rows}, {"type": [*_NOT_ARRAYS]}]})

    def _followed(self, schema: Any) -> Any:
        for _ in range(_N_REFERENCES_MAX):
            if not isinstance(schema, dict) or schema.keys() - _NOTES != {"$ref"}:
                break
            target = self._whole.document.resolve(schema["$ref"], self._schema)
            schema = target.schema if target else {}
        return schema


def _is_idle(schema: Schema, keyword: str, value: Any) -> bool:
    if keyword in _DEPENDS_ON and _DEPENDS_ON[keyword].isdisjoint(schema):
        return True
    if keyword in ("contains", "minContains"):
        return schema.get("minContains") == 0 and "maxContains" not in schema
    # Draft 3's `extends` has schemas; otherwise it names a class.
    return (keyword == "extends" and not isinstance(value, dict | list)) or bool(value == {})


def _is_anything(schema: Any) -> bool:
    if isinstance(schema, dict):
        return not schema.keys() & (_ENFORCED | _NOT_ENFORCED)
    return schema is True


def _slip(keyword: str, value: Any) -> str:
    """Return the keyword that a typo probably means; `@type` and `ui:type` are not typos."""
    if keyword in _KNOWN or not re.match(r"(?!x-|_|\w+:\w)[\w\s$]", keyword):
        return ""
    if keyword == "ref" and not str(value).startswith("#"):
        return ""  # Mongoose's, the name of a collection
    meant = _meant(re.sub(r"[^a-z0-9]", "", keyword.lower()))
    return "" if meant in _NOTES else meant


@functools.lru_cache(maxsize=1000)
def _meant(plain: str) -> str:
    alike = [name for name in _BY_PLAIN if abs(len(name) - len(plain)) <= 1 and len(name) > 5]
    near = [plain] if plain in _BY_PLAIN else difflib.get_close_matches(plain, alike, 1, 0.87)
    return "".join(_BY_PLAIN[name] for name in near)
