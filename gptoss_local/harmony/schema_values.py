"""Decides whether a schema, or several together, have a (finite) value at all.

With that `oneOf` becomes `anyOf` where no value satisfies two options, and what no value satisfies
is left out, such as a list of which each item holds another such list. Where it takes too long to
say, or only llguidance could say, there may be a value.

A question is a set of schemas that one value must satisfy. What it takes (values of properties and
items, of one type or another) are questions again; a value exists if it can be built from the
bottom up, so of a circle of questions none has one.
"""

import itertools
import json
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gptoss_local.harmony import guidance
from gptoss_local.harmony.format_schema import Enforced
from gptoss_local.harmony.regex_algebra import TooComplexError, matches
from gptoss_local.harmony.schema_document import LISTED, NAMED, SINGLE, Schema, all_schemas, within
from gptoss_local.harmony.schema_keywords import TYPES, has_type

_MAX_QUESTIONS = 50_000
_TEXT = ("pattern", "format", "minLength", "maxLength")
_OF_UNNAMED = {"patternProperties", "additionalProperties"}
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


class _Part(NamedTuple):
    """A schema within a question; `is_open` if its references and choices are to be followed."""

    id: int
    is_open: bool = True


_Question = frozenset[_Part]


class _Way(NamedTuple):
    """One way to a value: all of these have one, and so many of the others.

    If one of the `repeated` has a value, there are as many others as it takes.
    """

    all_of: tuple[_Question, ...] = ()
    n_others: int = 0
    others: tuple[_Question, ...] = ()
    repeated: tuple[_Question, ...] = ()


def settle(enforced: Enforced) -> None:
    """Leave no `oneOf` and nothing that has no value.

    Raises:
        UsageError: a value may satisfy two options of a `oneOf`, or nothing satisfies the schema.
    """
    values = _Values(enforced)
    schemas = list(all_schemas(enforced.schema))
    for schema in schemas:
        _check_one_of(schema, values, enforced)
    for schema in schemas:
        if "oneOf" in schema:
            schema["anyOf"] = schema.pop("oneOf")
    if not values.exist(enforced.schema):
        raise enforced.refusal("no finite value satisfies it")
    empty = {id(schema) for schema in schemas if not values.exist(schema)}
    for schema in schemas:
        _leave_out(schema, empty)


def _check_one_of(schema: Schema, values: "_Values", enforced: Enforced) -> None:
    options = [(option, values.tags(option)) for option in schema.get("oneOf", ())]
    pairs = itertools.combinations(enumerate(options), 2)
    for (i, (first, tags)), (j, (second, other_tags)) in pairs:
        if any(tags[name].isdisjoint(other_tags[name]) for name in tags.keys() & other_tags):
            continue
        if values.exist(first, second):
            where = within(enforced.places.get(id(schema), ""))
            if values.has_given_up:
                raise enforced.refusal(f"'oneOf'{where} is too complex")
            raise enforced.refusal(
                f"one value may satisfy options {i} and {j} of 'oneOf'{where}",
                hint="Use anyOf, or give each option a required property with a const of its own.",
            )


def _leave_out(schema: Schema, empty: set[int]) -> None:
    """Make parts of a schema false that have no value."""
    for keyword, value in schema.items():
        if keyword in SINGLE and id(value) in empty:
            schema[keyword] = False
        elif keyword in NAMED:
            value.update((name, False) for name, part in value.items() if id(part) in empty)
        elif keyword in LISTED and keyword != "allOf":
            value[:] = [part if id(part) not in empty else False for part in value]


class _Values:
    """Answers questions about the schemas of one document."""

    def __init__(self, enforced: Enforced) -> None:
        self._enforced = enforced
        self._schemas: dict[int, Schema] = {}
        self._lists: dict[int, dict[str, Any]] = {}
        self._ways: dict[_Question, list[_Way]] = {}
        self._have_value: set[_Question] = set()
        self._asked_by: defaultdict[_Question, set[_Question]] = defaultdict(set)
        self.has_given_up = False

    def exist(self, *schemas: Any) -> bool:
        """Return whether a value may satisfy all of these schemas."""
        question = self._question(schemas)
        waiting = deque([] if question is None else [question])
        while waiting and not self.has_given_up:
            self._enforced.check_time()
            asked = waiting.popleft()
            if asked in self._have_value:
                continue
            if asked not in self._ways:
                self.has_given_up = len(self._ways) == _MAX_QUESTIONS
                self._ways[asked] = list(self._find_ways(asked))
                for way in self._ways[asked]:
                    for other in (*way.all_of, *way.others, *way.repeated):
                        self._asked_by[other].add(asked)
                        waiting.append(other)
            if any(map(self._is_open, self._ways[asked])):
                self._have_value.add(asked)
                waiting.extend(self._asked_by[asked])
        return question is not None and (self.has_given_up or question in self._have_value)

    def tags(self, option: Any) -> dict[str, set[str]]:
        """Return the values that an object must have one of, by property.

        PERF: one of them separates two options of most unions, 100 times as fast as a question.
        """
        schema = self._referred(option)
        if schema.get("type") != "object":
            return {}
        properties = schema.get("properties", {})
        listed = {name: self._referred(properties.get(name)) for name in schema.get("required", ())}
        return {
            name: set(values)
            for name, part in listed.items()
            if (values := self._list(part)) is not None
        }

    def _referred(self, schema: Any) -> Schema:
        """Follow a schema that is a reference and nothing else; {} if it is true or false."""
        seen = set()
        while isinstance(schema, dict) and schema.keys() == {"$ref"} and id(schema) not in seen:
            seen.add(id(schema))
            schema = self._enforced.definitions[schema["$ref"].removeprefix("#/$defs/")]
        return schema if isinstance(schema, dict) else {}

    def _is_open(self, way: _Way) -> bool:
        if not self._have_value.issuperset(way.all_of):
            return False
        n_others = len(self._have_value.intersection(way.others))
        return n_others >= way.n_others or not self._have_value.isdisjoint(way.repeated)

    def _question(self, schemas: Iterable[Any]) -> _Question | None:
        """Return the question for a value of all of these; None if there plainly cannot be one."""
        found = [schema for schema in schemas if schema is not True]
        if False in found or not self._common(found):
            return None
        self._schemas.update((id(schema), schema) for schema in found)
        return frozenset(_Part(id(schema)) for schema in found)

    def _common(self, schemas: list[Schema]) -> list[Any]:
        """Return the values that all schemas list; [...] if none lists any."""
        listed = [values for schema in schemas if (values := self._list(schema)) is not None]
        if not listed:
            return [...]
        keys = set(listed[0]).intersection(*listed[1:])
        return [value for key, value in listed[0].items() if key in keys]

    def _list(self, schema: Schema) -> dict[str, Any] | None:
        """Return the values that a schema lists, by how they are written; None if it lists none."""
        if "const" not in schema and "enum" not in schema:
            return None
        if id(schema) not in self._lists:
            first, *more = (
                {json.dumps(value, sort_keys=True): value for value in values}
                for values in ([schema["const"]] if "const" in schema else None, schema.get("enum"))
                if values is not None
            )
            self._lists[id(schema)] = {
                key: value for key, value in first.items() if all(key in other for other in more)
            }
        return self._lists[id(schema)]

    def _find_ways(self, question: _Question) -> Iterator[_Way]:
        flat = self._follow(question)
        if flat is None:
            return
        for id_, is_open in flat.items():
            if is_open and (options := _options(self._schemas[id_])) is not None:
                chosen = frozenset(
                    _Part(other, flat[other] and other != id_ and _is_choice(self._schemas[other]))
                    for other in flat
                )
                for option in options:
                    if (more := self._question([option])) is not None:
                        yield _Way((chosen | more,))
                return
        yield from self._ways_by_type([self._schemas[id_] for id_ in flat])

    def _follow(self, question: _Question) -> dict[int, bool] | None:
        """Return all schemas that those of a question refer to, and whether each is open.

        None if there plainly cannot be a value, as where a reference leads to itself.
        """
        flat: dict[int, bool] = {}
        inside: list[int] = []
        waiting: list[_Part | None] = [*sorted(question)]
        while waiting:
            part = waiting.pop()
            if part is None:  # what comes after the parts of a schema
                inside.pop()
                continue
            id_, is_open = part
            if id_ in inside:
                return None
            flat[id_] = is_open or flat.get(id_, False)
            if not is_open:
                continue
            schema = self._schemas[id_]
            parts_of_it = list(schema.get("allOf", ()))
            if "$ref" in schema:
                name = schema["$ref"].removeprefix("#/$defs/")
                parts_of_it.append(self._enforced.definitions[name])
            more = self._question(parts_of_it)
            if more is None:
                return None
            inside.append(id_)
            waiting.extend([None, *more])
        return flat

    def _ways_by_type(self, schemas: list[Schema]) -> Iterator[_Way]:
        """Yield the ways of schemas in which no choice is open."""
        common = self._common(schemas)
        if common != [...]:
            if any(_may_be(value, schemas) for value in common):
                yield _Way()
            return
        for name in TYPES:
            if not all(_takes(schema, name) for schema in schemas):
                continue
            match name:
                case "array":
                    yield from self._array(schemas)
                case "object":
                    yield from self._object(schemas)
                case _ if _may_have_type(name, schemas):
                    yield _Way()

    def _array(self, schemas: list[Schema]) -> Iterator[_Way]:
        least, most = _bounds(schemas, "Items")
        n_first = max(len(schema.get("prefixItems", ())) for schema in schemas) if schemas else 0
        items = [
            self._question(_item(schema, i) for schema in schemas)
            for i in range(min(least, n_first + 1))
        ]
        if least <= most and None not in items:
            yield _Way(tuple(item for item in items if item is not None))

    def _object(self, schemas: list[Schema]) -> Iterator[_Way]:
        least, most = _bounds(schemas, "Properties")
        required = dict.fromkeys(name for schema in schemas for name in schema.get("required", ()))
        needed = []
        for name in required:
            if (value := self._property(schemas, name)) is None:
                return
            needed.append(value)
        if max(least, len(required)) > most:
            return
        if least <= len(required):
            yield _Way(tuple(needed))
            return
        named = dict.fromkeys(name for schema in schemas for name in schema.get("properties", ()))
        others = [self._property(schemas, name) for name in named if name not in required]
        known = (question for question in others if question is not None)
        more = tuple(question for question in self._unnamed(schemas) if question is not None)
        yield _Way(tuple(needed), least - len(required), tuple(known), more)

    def _property(self, schemas: list[Schema], name: str) -> _Question | None:
        """Return the question for the value of one property."""
        values = []
        for schema in schemas:
            found = [schema["properties"][name]] if name in schema.get("properties", ()) else []
            for pattern, part in schema.get("patternProperties", {}).items():
                if (is_match := self._matches(pattern, name)) is None:
                    found.append(True)
                elif is_match:
                    found.append(part)
            values.extend(found or [schema.get("additionalProperties", True)])
        return self._question(values)

    def _matches(self, pattern: str, name: str) -> bool | None:
        """Return whether a name matches; None if it takes too long to say."""
        try:
            return matches(self._enforced.languages[pattern], name)
        except TooComplexError:
            return None

    def _unnamed(self, schemas: list[Schema]) -> Iterator[_Question | None]:
        """Yield questions for a property that has no name here; a value for any of them will do."""
        schemas = [schema for schema in schemas if not _OF_UNNAMED.isdisjoint(schema)]
        if len(schemas) > 1 and any("patternProperties" in schema for schema in schemas):
            yield frozenset()
        else:
            for schema in schemas:
                for pattern, part in schema.get("patternProperties", {}).items():
                    name = {"type": "string", "pattern": pattern}
                    yield None if guidance.is_empty(json.dumps(name)) else self._question([part])
            yield self._question(schema.get("additionalProperties", True) for schema in schemas)


def _options(schema: Schema) -> list[Any] | None:
    options: list[Any] | None = schema.get("anyOf", schema.get("oneOf"))
    return options


def _is_choice(schema: Schema) -> bool:
    return "anyOf" in schema or "oneOf" in schema


def _takes(schema: Schema, name: str) -> bool:
    """Return whether a schema takes a type; integers are numbers."""
    named = schema.get("type", TYPES)
    names = [named] if isinstance(named, str) else named
    return name in names or (name == "integer" and "number" in names)


def _may_be(value: Any, schemas: list[Schema]) -> bool:
    types = [name for name in TYPES if has_type(value, name)]
    if not all(any(_takes(schema, name) for name in types) for schema in schemas):
        return False
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return True
    said = _said(schemas, _TEXT if isinstance(value, str) else _NUMBER)
    return not said or not guidance.is_empty(json.dumps({"const": value, "allOf": said}))


def _may_have_type(name: str, schemas: list[Schema]) -> bool:
    """Ask llguidance, if several schemas have a say."""
    said = _said(schemas, {"string": _TEXT, "integer": _NUMBER, "number": _NUMBER}.get(name, ()))
    return len(said) < 2 or not guidance.is_empty(json.dumps({"type": name, "allOf": said}))


def _said(schemas: list[Schema], keywords: Iterable[str]) -> list[Schema]:
    found = [{key: schema[key] for key in keywords if key in schema} for schema in schemas]
    return [schema for schema in found if schema]


def _bounds(schemas: list[Schema], what: str) -> tuple[int, float]:
    least = max((schema.get(f"min{what}", 0) for schema in schemas), default=0)
    return least, min((schema.get(f"max{what}", math.inf) for schema in schemas), default=math.inf)


def _item(schema: Schema, i: int) -> Any:
    first = schema.get("prefixItems", ())
    return first[i] if i < len(first) else schema.get("items", True)
