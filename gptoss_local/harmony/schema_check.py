"""Decides whether llguidance enforces a schema, and says where it does not.

llguidance misses endless schemas, such as lists of such lists. Two options of `oneOf` that it does
not take apart by a property are tested by asking it for a value that satisfies both.
"""

import time
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import guidance
from gptoss_local.harmony.format_schema import ROOT, TOO_DEEP, Enforced
from gptoss_local.harmony.schema_document import Schema, parts, within

_N_REFERENCES_MAX = 20  # from one to the next
_SEARCH_S = 2.0  # for a place, or for two options
_N_JOINED_MAX = 10  # schemas, and patterns: one text may have to match all of these, and the time
# of llguidance doubles with each

# llguidance's words, and ours.
_PROBLEMS = {
    "Unsatisfiable": "no finite value satisfies it",
    "min/maxProperties only": "'minProperties' or 'maxProperties' next to optional properties",
    "disjoint": "a property may match two patterns of 'patternProperties'",
    "circular references": "a reference to a schema around it, next to other keywords",
    "too many digits": "'multipleOf' with so many digits",
    "multiple of": "'multipleOf' of such a number",
    "Unicode property": "a pattern with an unknown kind of characters",
    "; Word": r"a pattern with a word boundary ('\b')",
    "lookarounds": "a pattern with '^' or '$' within",
    "look-around": "a pattern with look-ahead or look-behind",
    "backreferences": "a pattern that refers back to a group",
    "too large": "it is too large or too complex",
    "too big": "it is too large or too complex",
    "level exceeded": "it is too large or too complex",
    "recursion limit": TOO_DEEP,
    "Unable to determine": "patterns that are too complex together",
}
_PROBLEM_MAX = 200  # characters
_ONE_OF = "oneOf constraints"
_OPTIONS_HINT = "Use anyOf, or give each option a required property with a const of its own."


def enforceable(schema: Any, subject: str) -> Schema:
    """Return a schema that llguidance enforces. UsageError names the keyword and its place."""
    try:
        enforced = Enforced(schema, subject)
    except RecursionError as error:
        raise UsageError(f"{subject} cannot be enforced: {TOO_DEEP}") from error
    _check(enforced)
    return enforced.schema


def in_words(problem: str) -> str:
    for theirs, ours in _PROBLEMS.items():
        if theirs in problem:
            return ours
    _, is_pattern, why = problem.partition(" while processing ")[0].rpartition("error: ")
    if is_pattern:
        return f"a pattern is not a regular expression: {why.partition(' 1 | ')[0]}"
    return why[:_PROBLEM_MAX]


def _check(enforced: Enforced) -> None:
    _leave_out_endless(enforced)
    if min(len(enforced.patterns), enforced.n_joined) > _N_JOINED_MAX:
        raise enforced.refusal("it joins too many schemas with patterns")
    problem = guidance.schema_problem(enforced.schema)
    if _ONE_OF in problem:
        _Options(enforced).settle()
        problem = guidance.schema_problem(enforced.schema)
    if problem:
        words = in_words(problem)
        raise enforced.refusal(words + within(_find(words, enforced)))


def _leave_out_endless(enforced: Enforced) -> None:
    definitions, finite, n_before = enforced.definitions, set[str](), -1
    while len(finite) > n_before:
        n_before = len(finite)
        finite.update(name for name in definitions if _ends(definitions[name], finite))
    if ROOT not in finite:
        raise enforced.refusal(_PROBLEMS["Unsatisfiable"])
    for schema, _ in enforced.parts:
        if "$ref" in schema and _name(schema["$ref"]) not in finite:
            del schema["$ref"]
            schema["allOf"] = [*schema.get("allOf", ()), False]


def _name(reference: str) -> str:
    return reference.removeprefix("#/$defs/")


def _ends(schema: Any, finite: set[str]) -> bool:
    """Return whether a schema may have a finite value, if the definitions `finite` have one."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and _name(schema["$ref"]) not in finite:
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(_ends(part, finite) for part in schema[keyword]):
            return False
    needed = list(schema.get("allOf", ()))
    match schema.get("type"):
        case "object" | ["object"]:
            known = schema.get("properties", {})
            others = schema.get("additionalProperties", True)
            names = schema.get("required", ())
            unnamed = True if "patternProperties" in schema else others
            needed += [known.get(name, unnamed) for name in names]
            if schema.get("minProperties", 0) > len(names):
                any_of = [*known.values(), *schema.get("patternProperties", {}).values(), others]
                needed.append({"anyOf": any_of})
        case "array" | ["array"]:
            first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
            needed += first[:least]
            needed += [schema.get("items", True)] * (least > len(first))
    return all(_ends(part, finite) for part in needed)


class _Options:
    def __init__(self, enforced: Enforced) -> None:
        self._enforced = enforced
        self._end_s = time.monotonic() + _SEARCH_S
        self._places: dict[int, str] = {}  # of schemas that had `oneOf`, by id

    def settle(self) -> None:
        for schema, place in self._enforced.parts:
            if "oneOf" in schema:
                items = [*schema.items()]
                schema.clear()
                schema.update(("anyOf" if key == "oneOf" else key, value) for key, value in items)
                self._places[id(schema)] = place
        for definition in self._enforced.definitions.values():
            self._check(definition, [])

    def _check(self, schema: Any, around: list[Any]) -> None:
        """Check a schema and all within it; `around` has other schemas of the same value."""
        if isinstance(schema, bool):
            return
        for keyword in ("allOf", "anyOf"):
            options = schema.get(keyword, [])
            rest = [*around, {key: value for key, value in schema.items() if key != keyword}]
            if keyword == "anyOf" and id(schema) in self._places:
                self._check_options(options, rest, self._places[id(schema)])
            for i, option in enumerate(options):
                others = [*options[:i], *options[i + 1 :]] if keyword == "allOf" else []
                self._check(option, [*rest, *others])
        for part, _ in parts({k: v for k, v in schema.items() if k not in ("allOf", "anyOf")}):
            self._check(part, [])

    def _check_options(self, options: list[Any], around: list[Any], place: str) -> None:
        followed = [self._followed(option) for option in options]
        if not self._problem(*around, {"oneOf": followed}):
            return
        for i, option in enumerate(options):
            if self._overlap(*around, option, {"anyOf": options[i + 1 :]}):
                later = range(i + 1, len(options))
                pairs = (j for j in later if self._overlap(*around, option, options[j]))
                two = f"options {i} and {next(pairs, i + 1)}"
                problem = f"one value may satisfy {two} of 'oneOf'{within(place)}"
                raise self._enforced.refusal(problem, hint=_OPTIONS_HINT)

    def _followed(self, option: Any) -> Any:
        """Follow a schema that is a reference and nothing else: llguidance takes no two apart."""
        for _ in range(_N_REFERENCES_MAX):
            if isinstance(option, bool) or option.keys() != {"$ref"}:
                break
            option = self._enforced.definitions[_name(option["$ref"])]
        return option

    def _problem(self, *together: Any) -> str:
        definitions = self._enforced.definitions
        return guidance.schema_problem({"allOf": together, "$defs": definitions})

    def _overlap(self, *together: Any) -> bool:
        if time.monotonic() > self._end_s:
            raise self._enforced.refusal("its 'oneOf' are too complex")
        return guidance.may_exist(self._problem(*together))


def _find(words: str, enforced: Enforced) -> str:
    """Return the place of the innermost part with the problem; empty if there is none."""
    end_s = time.monotonic() + _SEARCH_S
    for part, place in enforced.parts:
        if time.monotonic() > end_s:
            break
        problem = guidance.schema_problem(part | {"$defs": enforced.definitions})
        if problem and in_words(problem) == words:
            return place
    return ""
