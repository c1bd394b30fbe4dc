"""A drill: items behind spaces or commas are wanted in another form, or only one of them.

The same word is other tokens behind a space than at the start of an answer, and this is where a
model learns to tell that they are the same. No separator ever occurs in an item.
"""

import json
from collections.abc import Callable, Sequence

from bench.nano.data.document import Answer, Branch
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("lists")

_MARKS = set(',;/|"`\\“”')  # of separators and quotes
_AND = {"and", "And", "AND"}
_BEFORE = (": {items}", ":\n{items}", ".\n\n{items}", ".\nItems: {items}", ".\n{items}")
_BEHIND = ("{items}\n\n", "Here is a list: {items}\n\n", "Items: {items}\n\n", "List:\n{items}\n\n")


_ASK_BEFORE = {
    form: tuple(
        request + _BEFORE[index % len(_BEFORE)]
        for index, request in enumerate(requests)
        if not request.startswith(("I ", "Can "))
    )
    for form, requests in BANK.REQUESTS.items()
}


def _behind(requests: Sequence[str]) -> tuple[str, ...]:
    return tuple(_BEHIND[i % len(_BEHIND)] + request for i, request in enumerate(requests))


_ASK_BEHIND = {
    form: _behind([request.replace("the following", "the above") + "." for request in requests])
    for form, requests in BANK.REQUESTS.items()
}
_ONE_BEHIND = _behind(BANK.ONE_BEHIND)
_SEPARATORS = (" ", " ", " ", ", ", ", ", ", ", " and ", "; ", " / ", " | ", ",", ";", "/", "\n")


def _list(source: Source, effort: Effort) -> Branch:
    if source.chance(0.35):
        return _one(source, effort)
    form = source.choice(tuple(BANK.REQUESTS))
    items, shown = _draw_list(source, form)
    is_before = source.chance(0.6)
    bank = (_ASK_BEFORE if is_before else _ASK_BEHIND)[form]
    content = phrase(source, bank, ask=is_before, items=shown)
    if is_before and source.chance(0.1):
        content = f"Write lists {BANK.EXAMPLES[form]}".rstrip("\n") + f"\n\n{content}"
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": BANK.ANALYSIS[form],
        "high": f"The user gives a list of items. {BANK.ANALYSIS[form]} I copy every item exactly and "
        "keep the order. I add nothing else.",
    }
    answer = Answer(_written(items, form), analysis[effort])
    return Branch("items", (Message(role="user", content=content),), answer, is_json=form == "json")


def _one(source: Source, effort: Effort) -> Branch:
    items, shown = _draw_list(source, "one")
    index = source.rng.randrange(min(len(items), 6))
    nth = source.choice(BANK.ORDINALS[index])
    if source.chance(0.3):
        index, nth = len(items) - 1, "last"
    nouns = ["item", "item", "element", "entry", "one"]
    if all(item.isalpha() for item in items):
        nouns += ["word", "word", "word"]
    if "\n" not in shown and source.chance(0.35):
        bank, is_request = BANK.ONE_INLINE, False
    else:
        is_request = source.chance(0.6)
        bank = BANK.ONE_BEFORE if is_request else _ONE_BEHIND
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
