"""A drill: items behind spaces or commas are wanted in another form, or only one of them.

The same word is other tokens behind a space than at the start of an answer, and this is where a
model learns to tell that they are the same. No separator ever occurs in an item.
"""

import json
from collections.abc import Callable

from bench.nano.data.document import Answer, Branch
from bench.nano.data.source import Source
from bench.nano.data.wording import combine, phrase
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

_MARKS = set(',;/|"`\\“”')  # of separators and quotes
_AND = {"and", "And", "AND"}
_VERBS = "Write|Give me|Return|Show|Print|Output|Turn|Put|Rewrite|Format|Convert|Change|Make|List"
_INTO = ("Turn", "Convert", "Change", "Make", "Put", "Rewrite", "Format")
_OBJECTS = (
    "these items|the items|this list|the following|these|the following items|the following list|"
    "all items"
)
_BEFORE = (": {items}", ":\n{items}", ".\n\n{items}", ".\nItems: {items}", ".\n{items}")
_BEHIND = ("{items}\n\n", "Here is a list: {items}\n\n", "Items: {items}\n\n", "List:\n{items}\n\n")

_SHAPES = {
    "json": "a JSON array of strings|a JSON list of strings|a JSON array with strings only|"
    "JSON, a list of strings|an array of strings in JSON",
    "lines": "one item per line|lines, one item each|separate lines, one item per line|"
    "plain lines with one item each|plain text with one item per line",
    "comma": "a comma-separated line without spaces|a list with commas and no spaces|"
    "one line separated by commas without spaces|comma separated text, no spaces|"
    "items separated by commas only, without any space",
    "quoted": "a quoted list with commas|a list of items in double quotes, separated by commas|"
    "quoted items, each in double quotes with commas between|"
    "a comma-separated list, each item in double quotes",
    "bullets": "a Markdown bullet list|a bullet list in Markdown|Markdown bullets, one per item|"
    "a Markdown list with a bullet per item|bullets with a dash before each item",
}
_EXAMPLES = {
    "json": 'like ["a", "b"]',
    "lines": "like\na\nb\n",
    "comma": "like a,b",
    "quoted": 'like "a", "b"',
    "bullets": "like\n- a\n- b\n",
}


def _requests(shape: str) -> tuple[str, ...]:
    """All ways to ask for a shape, without the items."""
    asked: list[str] = []
    for verb in _VERBS.split("|"):
        asked += combine(verb, _OBJECTS, "into" if verb in _INTO else "as", shape)
    asked += combine("I need|I want|I would like|Can I have", _OBJECTS, "as", shape)
    return tuple(asked)


_ASK_BEFORE = {
    name: tuple(
        request + _BEFORE[index % len(_BEFORE)]
        for index, request in enumerate(_requests(shape))
        if not request.startswith(("I ", "Can "))
    )
    for name, shape in _SHAPES.items()
}
_ASK_BEHIND = {
    name: tuple(
        _BEHIND[index % len(_BEHIND)] + request.replace("the following", "the above") + "."
        for index, request in enumerate(_requests(shape))
    )
    for name, shape in _SHAPES.items()
}
_THING = "the {nth} {noun}|only the {nth} {noun}|just the {nth} {noun}|nothing but the {nth} {noun}"
_ONE_VERBS = (
    "Give me|Tell me|Return|Write|Print|Output|Show me|Reply with|Answer with|Say|Name|Find|Pick"
)
_ONE_BEFORE = (
    *combine(_ONE_VERBS, _THING, "of|in|from", "this list: {items}|the list: {items}|the following:"
             " {items}|this: {items}|these: {items}|the list below.\n\n{items}|what follows:\n"
             "{items}"),
    *combine("What is|Which is|What's", "the {nth} {noun}", "of|in|from", "this list: {items}|"
             "the list: {items}|the following: {items}|these: {items}|this:\n{items}"),
)  # fmt: skip
_ONE_INLINE = (
    *combine(_ONE_VERBS, _THING, "of|in|from", '"{items}"|"{items}".|the list "{items}".'),
    *combine("What is|Which is|What's", "the {nth} {noun}", "of|in|from",
             '"{items}"?|the list "{items}"?|the text "{items}"?'),
    *combine("In|From|Of", '"{items}",|the list "{items}",|the text "{items}",',
             "give me the {nth} {noun}.|tell me the {nth} {noun}.|what is the {nth} {noun}?|"
             "say only the {nth} {noun}.|which is the {nth} {noun}?"),
)  # fmt: skip
_ONE_BEHIND = tuple(
    _BEHIND[index % len(_BEHIND)] + request
    for index, request in enumerate(
        combine(
            "Give me|Tell me|Return|Write|Print|Output|Say|Reply with|Answer with|What is|Which is",
            "the {nth} {noun}|only the {nth} {noun}|just the {nth} {noun}",
            "of the list|of these|in the list|from the list above|of the above",
        )
    )
)
_ORDINALS = (
    ("first", "1st"), ("second", "2nd"), ("third", "3rd"), ("fourth", "4th"), ("fifth", "5th"),
    ("sixth", "6th"),
)  # fmt: skip
_ANALYSIS = {
    "json": "I write the items as a JSON list.",
    "lines": "I write one item per line.",
    "comma": "I write the items with commas and no spaces.",
    "quoted": "I write each item in double quotes with commas between.",
    "bullets": "I write each item behind a dash.",
}
_SEPARATORS = (" ", " ", " ", ", ", ", ", ", ", " and ", "; ", " / ", " | ", ",", ";", "/", "\n")


def _list(source: Source, effort: Effort) -> Branch:
    if source.chance(0.35):
        return _one(source, effort)
    form = source.choice(tuple(_SHAPES))
    items, shown = _draw_list(source, form)
    is_before = source.chance(0.6)
    bank = (_ASK_BEFORE if is_before else _ASK_BEHIND)[form]
    content = phrase(source, bank, ask=is_before, items=shown)
    if is_before and source.chance(0.1):
        content = f"Write lists {_EXAMPLES[form]}".rstrip("\n") + f"\n\n{content}"
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": _ANALYSIS[form],
        "high": f"The user gives a list of items. {_ANALYSIS[form]} I copy every item exactly and "
        "keep the order. I add nothing else.",
    }
    answer = Answer(_written(items, form), analysis[effort])
    return Branch("items", (Message(role="user", content=content),), answer, is_json=form == "json")


def _one(source: Source, effort: Effort) -> Branch:
    items, shown = _draw_list(source, "one")
    index = source.rng.randrange(min(len(items), 6))
    nth = source.choice(_ORDINALS[index])
    if source.chance(0.3):
        index, nth = len(items) - 1, "last"
    nouns = ["item", "item", "element", "entry", "one"]
    if all(item.isalpha() for item in items):
        nouns += ["word", "word", "word"]
    if "\n" not in shown and source.chance(0.35):
        bank, is_request = _ONE_INLINE, False
    else:
        is_request = source.chance(0.6)
        bank = _ONE_BEFORE if is_request else _ONE_BEHIND
    content = phrase(source, bank, ask=False, items=shown, nth=nth, noun=source.choice(nouns))
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": f"The {nth} item is {items[index]}.",
        "high": f"The user gives a list and wants one item of it, the {nth}. The {nth} item is "
        f"{items[index]}. I write it alone, exactly as it stands there.",
    }
    answer = Answer(items[index], analysis[effort])
    return Branch("items", (Message(role="user", content=content),), answer)


def _draw_list(source: Source, form: str) -> tuple[list[str], str]:
    """Draw items and how the user writes them, which is not yet the form that is wanted."""
    taken = {"lines": "\n", "comma": ","}.get(form)
    separator = source.choice([s for s in _SEPARATORS if s != taken])
    draw = source.choice(_KINDS) if source.chance(0.5) else _mixed
    n = source.rng.randint(2, 12 if source.chance(0.3) else 6)
    items = [source.fresh(lambda: _item(source, draw, separator)) for _ in range(n)]
    if separator == ", " and n > 2 and source.chance(0.5):
        return items, ", ".join(items[:-1]) + source.choice((" and ", ", and ")) + items[-1]
    return items, separator.join(items)


def _item(source: Source, draw: Callable[[Source], str], separator: str) -> str:
    while True:
        item = draw(source)
        is_clear = item[0].isalnum() and item[-1].isalnum() and item.isprintable()
        is_whole = separator != " " or " " not in item
        if is_clear and is_whole and not set(item) & _MARKS and not _AND & set(item.split()):
            return item


def _mixed(source: Source) -> str:
    return source.choice(_KINDS)(source)


def _name(source: Source) -> str:
    return source.invented().capitalize()


def _number(source: Source) -> str:
    return str(source.rng.randrange(10 ** source.rng.randint(1, 6)))


def _tokens(source: Source) -> str:
    return source.tokens(source.rng.randint(1, 3))


_KINDS: tuple[Callable[[Source], str], ...] = (
    Source.token_word, Source.token_word, Source.any_word, Source.invented, _name,
    Source.identifier, Source.person, Source.city, Source.noun, _number, _tokens, _tokens,
)  # fmt: skip


def _written(items: list[str], form: str) -> str:
    if form == "json":
        return json.dumps(items, ensure_ascii=False)
    if form == "comma":
        return ",".join(items)
    if form == "quoted":
        return ", ".join(f'"{item}"' for item in items)
    return "\n".join(f"- {item}" if form == "bullets" else item for item in items)


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"items": _list}
