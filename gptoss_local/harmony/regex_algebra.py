"""Regular languages as trees, with intersection and complement, and back to plain ones.

A plain tree has characters, sequences, alternatives and repetitions, which every regular expression
library knows. `plain` brings the others to that form: it makes a deterministic automaton by
Brzozowski's derivatives and eliminates its states. Knows no syntax of patterns.

Source: J. A. Brzozowski, Derivatives of Regular Expressions (1964); S. Owens, J. Reppy, A. Turon,
Regular-expression derivatives re-examined (2009), for the canonical forms and character classes.
"""

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from gptoss_local.off_loop import Check

Ranges = tuple[tuple[int, int], ...]
LAST = 0x10FFFF
_MAX_STATES = 200  # of an automaton
_MAX_NODES = 5000  # of a tree; some are shared, and count each time


@dataclass(frozen=True, slots=True)
class Chars:
    """One character: of code points in sorted ranges that do not touch, or with a property.

    Attributes:
        properties: Such as `p{L}`, with `P` for characters that do not have it.
        is_negated: It is any character but these. Without properties this is never set.
    """

    ranges: Ranges
    properties: tuple[str, ...] = ()
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Seq:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Alt:
    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class And:
    """Texts that all of several languages have."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    """All texts that a language does not have."""

    part: "Node"


Node = Chars | Seq | Alt | Repeat | And | Not

EMPTY = Seq(())
NOTHING = Alt(())
ANY = Chars(((0, LAST),))
ANYTHING = Repeat(ANY, 0, None)


class TooComplexError(ValueError):
    """An automaton would have too many states, or characters are not known one by one."""


def chars(ranges: Iterable[tuple[int, int]]) -> Chars:
    """Return characters in canonical form."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        elif low <= high:
            merged.append((low, high))
    return Chars(tuple(merged))


def inverted(ranges: Ranges) -> Ranges:
    """Return all other characters; `ranges` are canonical."""
    edges = [-1, *(edge for pair in ranges for edge in pair), LAST + 1]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low + 1, high - 1) for low, high in pairs if low + 1 < high)


def seq(*parts: Node) -> Node:
    flat: list[Node] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat.extend(part.parts if isinstance(part, Seq) else [part])
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(*options: Node) -> Node:
    single: list[tuple[int, int]] = []
    others: dict[Node, None] = {}
    for option in options:
        for node in option.options if isinstance(option, Alt) else (option,):
            if isinstance(node, Chars) and not node.properties:
                single.extend(node.ranges)
            else:
                others[node] = None
    flat: list[Node] = [chars(single), *others] if single else list(others)
    if ANYTHING in flat:
        return ANYTHING
    return flat[0] if len(flat) == 1 else Alt(tuple(flat))


def repeat(part: Node, least: int, most: int | None) -> Node:
    if most == 0 or (part in (EMPTY, NOTHING) and least == 0):
        return EMPTY
    return part if (least, most) == (1, 1) else Repeat(part, least, most)


def both(*parts: Node) -> Node:
    flat: dict[Node, None] = {}
    for part in parts:
        flat.update(dict.fromkeys(part.parts if isinstance(part, And) else (part,)))
    flat.pop(ANYTHING, None)
    if NOTHING in flat:
        return NOTHING
    nodes = tuple(flat)
    return (nodes[0] if len(nodes) == 1 else And(nodes)) if nodes else ANYTHING


def negated(part: Node) -> Node:
    if isinstance(part, Not):
        return part.part
    if part == NOTHING:
        return ANYTHING
    return NOTHING if part == ANYTHING else Not(part)


def is_nullable(node: Node) -> bool:
    """Return whether the empty text is in the language."""
    match node:
        case Chars():
            return False
        case Seq(parts) | And(parts):
            return all(map(is_nullable, parts))
        case Alt(options):
            return any(map(is_nullable, options))
        case Repeat(part, least, _):
            return least == 0 or is_nullable(part)
        case Not(part):
            return not is_nullable(part)


def matches(node: Node, text: str) -> bool:
    """Return whether a text is in the language. Raises TooComplexError."""
    for char in text:
        node = _derivative(node, ord(char))
        check_size(node)
    return is_nullable(node)


def check_size(node: Node) -> None:
    """Raise TooComplexError if a tree is too large to work on."""
    n_left, nodes = _MAX_NODES, [node]
    while nodes:
        n_left -= 1
        if not n_left:
            raise TooComplexError(f"more than {_MAX_NODES} nodes")
        nodes.extend(_children(nodes.pop()))


def _children(node: Node) -> "tuple[Node, ...]":
    match node:
        case Seq(parts) | And(parts) | Alt(parts):
            return parts
        case Repeat(part, _, _) | Not(part):
            return (part,)
        case _:
            return ()


def is_plain(node: Node) -> bool:
    return not isinstance(node, And | Not) and all(map(is_plain, _children(node)))


def plain(node: Node, check: Check = lambda: None) -> Node:
    """Return the same language as a plain tree.

    Args:
        node: The language.
        check: Raises when the tree is no longer wanted; it may take a while.

    Raises:
        TooComplexError: that would take too much.
    """
    if is_plain(node):
        return node
    match node:
        case Seq(parts):
            return seq(*(plain(part, check) for part in parts))
        case Alt(options):
            return alt(*(plain(option, check) for option in options))
        case Repeat(part, least, most):
            return repeat(plain(part, check), least, most)
        case _:
            return _expression(*_automaton(node, check), check)


@functools.lru_cache(maxsize=10_000)
def _derivative(node: Node, char: int) -> Node:
    """Return what may follow `char` in the texts that begin with it."""
    match node:
        case Chars(ranges, ()):
            return EMPTY if any(low <= char <= high for low, high in ranges) else NOTHING
        case Chars():
            raise TooComplexError("properties of characters are not known here")
        case Seq(parts):
            n_skipped = itertools.takewhile(lambda i: is_nullable(parts[i]), range(len(parts) - 1))
            firsts = [0, *(i + 1 for i in n_skipped)] if parts else []
            return alt(*(seq(_derivative(parts[i], char), *parts[i + 1 :]) for i in firsts))
        case Alt(options):
            return alt(*(_derivative(option, char) for option in options))
        case Repeat(part, least, most):
            more = repeat(part, max(least - 1, 0), None if most is None else most - 1)
            return seq(_derivative(part, char), more)
        case And(parts):
            return both(*(_derivative(part, char) for part in parts))
        case Not():
            return negated(_derivative(node.part, char))


def _edges(node: Node) -> set[int]:
    """Return the code points at which a set of characters that the language tells apart begins."""
    if isinstance(node, Chars):
        return {edge for low, high in node.ranges for edge in (low, high + 1)}
    return set().union(*map(_edges, _children(node)))


def _automaton(start: Node, check: Check) -> tuple[list[Node], dict[tuple[int, int], Node]]:
    """Return the states, the first one being the start, and the characters from one to another."""
    edges = sorted({0} | _edges(start) - {LAST + 1})
    classes = list(zip(edges, [*(edge - 1 for edge in edges[1:]), LAST], strict=True))
    numbers: dict[Node, int] = {start: 0}
    states = [start]
    steps: dict[tuple[int, int], Node] = {}
    for i, state in enumerate(states):  # it grows in the loop
        check()
        for low, high in classes:
            after = _derivative(state, low)
            if after == NOTHING:
                continue
            if after not in numbers:
                check_size(after)
                if len(states) == _MAX_STATES:
                    raise TooComplexError(f"more than {_MAX_STATES} states")
                numbers[after] = len(states)
                states.append(after)
            step = (i, numbers[after])
            steps[step] = alt(steps.get(step, NOTHING), Chars(((low, high),)))
    return states, steps


def _expression(states: list[Node], steps: dict[tuple[int, int], Node], check: Check) -> Node:
    """Eliminate one state after another, those with the fewest steps first."""
    start, end = -1, -2
    steps = steps | {(start, 0): EMPTY}
    steps |= {(i, end): EMPTY for i, state in enumerate(states) if is_nullable(state)}
    left = set(range(len(states)))
    while left:
        check()
        into = {i: [a for a, b in steps if b == i != a] for i in left}
        out = {i: [b for a, b in steps if a == i != b] for i in left}
        i = min(left, key=lambda i: (len(into[i]) * len(out[i]), i))
        loop = repeat(steps.pop((i, i), NOTHING), 0, None)
        for a in into[i]:
            way = seq(steps[a, i], loop)
            for b in out[i]:
                steps[a, b] = alt(steps.get((a, b), NOTHING), seq(way, steps[i, b]))
                check_size(steps[a, b])
        steps = {step: node for step, node in steps.items() if i not in step}
        left.remove(i)
    return steps.get((start, end), NOTHING)
