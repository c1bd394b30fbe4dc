"""The schema of a format -> the same demands in what llguidance enforces, or an error.

Every keyword that demands something is enforced or refused; what JSON Schema does not know is an
annotation. What nothing refers to is not looked at. `oneOf` is left to `schema_values`.

Source: JSON Schema 2020-12, OpenAPI 3.0 (`nullable`), and llguidance's docs/json_schema.md.
"""

from typing import Any

from gptoss_local.errors import UsageError
from gptoss_local.harmony import schema_containers, schema_scalars
from gptoss_local.harmony.patience import Patience
from gptoss_local.harmony.regex_algebra import Node
from gptoss_local.harmony.schema_document import Document, Schema, Target
from gptoss_local.harmony.schema_keywords import NOT_ENFORCED, TYPES, slip
from gptoss_local.harmony.schema_reading import (
    Reader,
    Reading,
    exact,
    is_anything,
    is_nothing,
    short,
)

_EXACT_MAX = 2**53  # llguidance reads numbers as floats
_CHOICES = {"enum", "const", "anyOf", "oneOf", "allOf", "$ref"}


class Enforced:
    """A schema in keywords that llguidance enforces, but for `oneOf`.

    Attributes:
        patience: How long it may take until it is a grammar.
        schema: A reference to one of its `$defs`; it has no other references.
        places: Of its parts in the client's schema, by their ids.
        languages: Of the expressions in `patternProperties`.
    """

    def __init__(self, subject: str, patience: Patience) -> None:
        self._subject = subject
        self.patience = patience
        self.schema: Schema = {}
        self.places: dict[int, str] = {}
        self.languages: dict[str, Node] = {}

    @property
    def definitions(self) -> dict[str, Any]:
        definitions: dict[str, Any] = self.schema["$defs"]
        return definitions

    def check_time(self) -> None:
        """Raise UsageError if this takes too long, or no client waits for it any more."""
        if self.patience.is_over:
            raise self.refusal(
                f"it takes longer than {self.patience.limit_s:g} s to prepare",
                hint="Make the JSON schema smaller, especially what 'oneOf' and 'allOf' combine.",
            )

    def refusal(self, problem: str, hint: str = "") -> UsageError:
        return UsageError(
            f"{self._subject} cannot be enforced: {problem}",
            hint=hint or "Leave that out of the JSON schema, or say it in another way.",
        )


def enforceable(schema: Any, subject: str, patience: Patience) -> Enforced:
    """Translate a schema.

    Args:
        schema: As a client sends it.
        subject: What has it, for messages.
        patience: How long it may take.

    Raises:
        UsageError: it has a keyword that cannot be enforced; the message names it and its place.
    """
    return _Translation(schema, Enforced(subject, patience)).run()


class _Translation:
    """Translates one schema, and what it refers to."""

    def __init__(self, root: Any, result: Enforced) -> None:
        self._root = root
        self._result = result
        self._document = Document(root)
        self._names: dict[str, str] = {}  # of definitions, by place
        self._waiting: list[Target] = []

    def run(self) -> Enforced:
        definitions: dict[str, Any] = {}
        reference = self.refer_to(Target(self._root, ""))
        while self._waiting:
            schema, place = self._waiting.pop()
            definitions[self._names[place]] = self.read(schema, place)
        self._result.schema = {"$ref": reference, "$defs": definitions}
        return self._result

    def refer_to(self, target: Target) -> str:
        if target.place not in self._names:
            self._names[target.place] = str(len(self._names))
            self._waiting.append(target)
        return f"#/$defs/{self._names[target.place]}"

    def resolve(self, reference: str, schema: Schema) -> Target | None:
        return self._document.resolve(reference, schema)

    def name_language(self, expression: str, language: Node) -> None:
        self._result.languages[expression] = language

    def check_time(self) -> None:
        self._result.check_time()

    def refusal(self, problem: str) -> UsageError:
        return self._result.refusal(problem)

    def read(self, schema: Any, place: str) -> Any:
        self.check_time()
        if isinstance(schema, bool):
            return schema
        at = Reading(self, schema, place)
        if not isinstance(schema, dict):
            at.refuse(short(schema), "is not a schema")
        for keyword, value in schema.items():
            if reader := _READERS.get(keyword):
                reader(at, keyword, value)
            elif keyword in NOT_ENFORCED:
                if not _demands_nothing(schema, keyword, value):
                    at.unsupported(keyword)
            elif meant := slip(keyword, value):
                why = f"is not a keyword of JSON Schema; did you mean '{meant}'?"
                at.refuse(f"'{keyword}'", why)
        schema_containers.finish(at)
        result = _joined(at)
        self._result.places[id(result)] = place
        return result


def _joined(at: Reading) -> Any:
    """Return what has become of the keywords of a schema."""
    if at.is_nothing:
        return False
    out = at.out
    if "oneOf" in out and "anyOf" in out:  # one choice at a time
        at.also.append({"oneOf": out.pop("oneOf")})
    if at.also:
        out["allOf"] = [*out.get("allOf", ()), *at.also]
    if at.schema.get("nullable") is not True or not out:
        return out
    if at.types and _CHOICES.isdisjoint(out):
        return out | {"type": [name for name in TYPES if name in at.types or name == "null"]}
    return {"anyOf": [out, {"type": "null"}]}


def _demands_nothing(schema: Schema, keyword: str, value: Any) -> bool:
    """Return whether a keyword that cannot be enforced need not be."""
    match keyword:
        case "if":
            return all(is_anything(schema.get(then, True)) for then in ("then", "else"))
        case "then" | "else":
            return "if" not in schema or is_anything(value)
        case "contains":
            return schema.get("minContains") == 0 and "maxContains" not in schema
        case "minContains" | "maxContains":
            return "contains" not in schema or (keyword == "minContains" and value == 0)
        case "dependentRequired" | "dependentSchemas" | "dependencies":
            parts = value.values() if isinstance(value, dict) else [value]
            return all(part == [] or is_anything(part) for part in parts)
        case "extends":  # of draft 3, unless it names a class
            return not isinstance(value, dict | list)
    return False


def _type(at: Reading, keyword: str, value: Any) -> None:
    names = value if isinstance(value, list) else [value]
    for name in names:
        if name not in TYPES:
            at.refuse(short(name), "is not a type")
    at.out[keyword] = value
    at.is_nothing |= not names


def _enum(at: Reading, keyword: str, value: Any) -> None:
    if not isinstance(value, list):
        at.refuse(f"'{keyword}'", "must be a list")
    at.out[keyword] = [_checked(at, exact(item)) for item in value]
    at.is_nothing |= not value


def _const(at: Reading, keyword: str, value: Any) -> None:
    at.out[keyword] = _checked(at, exact(value))


def _checked(at: Reading, value: Any) -> Any:
    """Return a value if llguidance has it right."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _checked(at, part)
    elif isinstance(value, int) and abs(value) > _EXACT_MAX:
        at.refuse(short(value), "is too large a number")
    return value


def _options(at: Reading, keyword: str, value: Any) -> None:
    if not isinstance(value, list):
        at.refuse(f"'{keyword}'", "must be a list of schemas")
    at.out[keyword] = [at.read(option, f".{keyword}[{i}]") for i, option in enumerate(value)]
    at.is_nothing |= not value and keyword != "allOf"


def _ref(at: Reading, keyword: str, value: Any) -> None:
    target = at.resolve(value) if isinstance(value, str) else None
    if target is None:
        at.refuse(f"'$ref' to {short(value)}", "leads to nothing within the schema")
    at.out[keyword] = at.refer_to(target)


def _not(at: Reading, keyword: str, value: Any) -> None:
    if is_anything(value):
        at.is_nothing = True
    elif not is_nothing(value):
        at.unsupported(keyword)


_READERS: dict[str, Reader] = {
    **schema_scalars.READERS,
    **schema_containers.READERS,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "anyOf": _options,
    "oneOf": _options,
    "allOf": _options,
    "$ref": _ref,
    "not": _not,
}
