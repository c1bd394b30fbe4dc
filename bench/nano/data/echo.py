"""Branches that ask for a given text back, for one word, or for a list in another form."""

import json
from collections.abc import Callable, Sequence

from bench.nano.data.document import Answer, Branch, thought
from bench.nano.data.source import Source
from bench.nano.data.tools import user
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort

BANK = banks("echo")
WORDS = banks("words")


_GAPS = (":\n{text}", ":\n\n{text}", ".\n\n{text}", "\n{text}", ".\n{text}")
_BLOCK = tuple(request + _GAPS[index % len(_GAPS)] for index, request in enumerate(BANK.BLOCK))

QUOTES = "\"'`“”«»‘’"


def delimited(source: Source, text: str) -> str:
    """Put a text between a pair of marks that do not occur in it; a fence if there is none."""
    pairs = [pair for pair in BANK.PAIRS if pair[0] not in text and pair[1] not in text]
    if not pairs:
        return fenced(text)
    before, after = source.choice(pairs)
    return before + text + after


def fenced(text: str, language: str = "") -> str:
    """Put a text, which holds no fence itself, into a code fence."""
    return f"```{language}\n{text}\n```"


def _echo(source: Source, effort: Effort) -> Branch:
    text = _draw_text(source)
    answer = Answer(text, thought(effort, BANK.THOUGHTS["echo"]))
    message = user(_echo_request(source, text))
    return Branch("echo", (message,), answer, opens_final=source.chance(0.05))


def _echo_request(source: Source, text: str) -> str:
    one_line = "\n" not in text
    is_bare = text[0] not in QUOTES and source.chance(0.75)  # its own quotes would look like ours
    form = source.rng.random()
    if one_line and form < 0.5:
        if text[0] not in QUOTES and source.chance(0.6):
            return phrase(source, BANK.BARE, text=text)
        return phrase(source, BANK.INLINE, ask=False, text=delimited(source, text))
    if one_line and form < 0.78:
        shown = text if is_bare else delimited(source, text)
        return phrase(source, BANK.COLON, text=shown)
    shown = text if is_bare else fenced(text)
    if form < 0.92:
        return phrase(source, _BLOCK, text=shown)
    return phrase(source, BANK.FIRST, ask=False, text=shown)


def _draw_text(source: Source) -> str:
    draw = source.rng.choices(tuple(_TEXTS), tuple(_TEXTS.values()))[0]
    if draw is Source.line:
        return _without_fence(source.line())
    return source.fresh(lambda: _without_fence(draw(source)))


def _without_fence(text: str) -> str:
    return text.replace("```", "``").strip() or "-"


def _few_words(source: Source) -> str:
    """Draw words of which all but the first are other tokens than at the start of an answer."""
    draw = source.choice((source.token_word, source.token_word, source.invented, source.person))
    return source.choice((" ", " ", ", ")).join(draw() for _ in range(source.rng.randint(2, 6)))


def _character(source: Source) -> str:
    low, high = (33, 126) if source.chance(0.5) else source.choice(BANK.SCRIPTS)
    return chr(source.rng.randint(low, high))


def _digits(source: Source) -> str:
    digits = source.number(10 ** source.rng.randint(1, 24))
    return source.choice((digits, f"-{digits}", f"{digits}.{source.rng.randrange(1000)}"))


def _json(source: Source) -> str:
    pairs: dict[str, object] = {}
    for _ in range(source.rng.randint(1, 4)):
        value = source.choice((source.tokens(2), source.rng.randrange(1000), True, None, [1, 2]))
        pairs[source.code_word()] = value
    indent = 2 if source.chance(0.25) else None
    separators = (",", ":") if indent is None and source.chance(0.4) else None
    return json.dumps(pairs, ensure_ascii=False, indent=indent, separators=separators)


def _markdown(source: Source) -> str:
    word, sentence = source.tokens(2), source.sentence()
    invented, noun, other = source.invented(), source.noun(), source.noun()
    return source.choice(BANK.MARKDOWN).format(
        word=word, sentence=sentence, invented=invented, noun=noun, other=other
    )


def _foreign(source: Source) -> str:
    low, high = source.choice(BANK.SCRIPTS)
    lengths = [source.rng.randint(1, 8) for _ in range(source.rng.randint(1, 6))]
    return " ".join("".join(chr(source.rng.randint(low, high)) for _ in range(n)) for n in lengths)


def _request(source: Source) -> str:
    slots = {
        "word": source.token_word(), "noun": source.noun(), "city": source.city(),
        "name": source.person(), "path": source.path(), "command": source.command(),
        "n": source.rng.randrange(100), "m": source.rng.randrange(100),
    }  # fmt: skip
    return source.choice(BANK.REQUESTS).format(**slots)


def _lines(source: Source) -> str:
    n_lines = source.rng.randint(2, 12)
    if source.chance(0.5):
        return source.code(n_lines)
    return "\n".join(source.line() for _ in range(min(n_lines, 6)))


_TEXTS: dict[Callable[[Source], str], float] = {
    Source.line: 0.35, _few_words: 0.2, lambda s: s.tokens(s.rng.randint(12, 60)): 0.08,
    _character: 0.04, _digits: 0.03, _json: 0.05, _markdown: 0.05, _foreign: 0.05, _request: 0.08,
    _lines: 0.08,
}  # fmt: skip


def _word(source: Source, effort: Effort) -> Branch:
    word = source.fresh(lambda: _draw_word(source))
    content = phrase(source, BANK.WORD, word=word)
    analysis = thought(effort, BANK.THOUGHTS["word"], word=word)
    return Branch("word", (user(content),), Answer(word, analysis))


def _draw_word(source: Source) -> str:
    kind = source.rng.randrange(12)
    if kind in (2, 3, 4):
        cases = (str.lower, str.capitalize, str.upper) if kind < 4 else (str.upper, str.capitalize)
        case = source.choice(cases)
        return case(source.invented() if kind < 4 else source.token_word())
    draws: dict[int, Callable[[], str]] = {
        0: lambda: source.choice(BANK.COMMON_WORDS), 1: source.noun, 5: source.identifier,
        6: lambda: _number(source),
    }  # fmt: skip
    return draws.get(kind, source.token_word)()


def _number(source: Source) -> str:
    return source.number(10 ** source.rng.randint(1, 6))


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
    for form, requests in BANK.SHAPES.items()
}


def _behind(requests: Sequence[str]) -> tuple[str, ...]:
    return tuple(_BEHIND[i % len(_BEHIND)] + request for i, request in enumerate(requests))


_ASK_BEHIND = {
    form: _behind([request.replace("the following", "the above") + "." for request in requests])
    for form, requests in BANK.SHAPES.items()
}
_ONE_BEHIND = _behind(BANK.ONE_BEHIND)
_SEPARATORS = (" ", " ", " ", ", ", ", ", ", ", " and ", "; ", " / ", " | ", ",", ";", "/", "\n")


def _list(source: Source, effort: Effort) -> Branch:
    if source.chance(0.35):
        return _one(source, effort)
    form = source.choice(tuple(BANK.SHAPES))
    items, shown = _draw_list(source, form)
    is_before = source.chance(0.6)
    bank = (_ASK_BEFORE if is_before else _ASK_BEHIND)[form]
    content = phrase(source, bank, ask=is_before, items=shown)
    if is_before and source.chance(0.1):
        content = f"Write lists {BANK.EXAMPLES[form]}".rstrip("\n") + f"\n\n{content}"
    analysis = thought(effort, BANK.THOUGHTS["list"], s0=BANK.ANALYSIS[form])
    answer = Answer(_written(items, form), analysis)
    return Branch("items", (user(content),), answer, is_json=form == "json")


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
    analysis = thought(effort, BANK.THOUGHTS["one"], nth=nth, s1=items[index])
    answer = Answer(items[index], analysis)
    return Branch("items", (user(content),), answer)


def _draw_list(source: Source, form: str) -> tuple[list[str], str]:
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


def _tokens(source: Source) -> str:
    return source.tokens(source.rng.randint(1, 3))


_KINDS: tuple[Callable[[Source], str], ...] = (
    Source.token_word, Source.token_word, Source.any_word, Source.invented,
    lambda s: s.invented().capitalize(), Source.identifier, Source.person, Source.city,
    Source.noun, _number, _tokens, _tokens,
)  # fmt: skip


def _written(items: list[str], form: str) -> str:
    if form == "json":
        return json.dumps(items, ensure_ascii=False)
    if form == "comma":
        return ",".join(items)
    if form == "quoted":
        return ", ".join(f'"{item}"' for item in items)
    return "\n".join(f"- {item}" if form == "bullets" else item for item in items)


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {
    "echo": _echo,
    "word": _word,
    "items": _list,
}
