"""Small talk, and the polite refusal of all that the model cannot do.

`small_talk`, `fallback_phrasings` and `fallback_border_phrasings` hold the wording.
"""

import math
import re
from collections.abc import Callable

from bench.nano.data.agent import draw_file, draw_folder, draw_task, request
from bench.nano.data.document import Answer, Branch, thought
from bench.nano.data.knowledge import (
    ALL_MESSAGES,
    CAPITALS,
    Exchange,
    ask_capital,
    ask_sum,
    draw_small_talk,
    is_country,
    to_branch,
)
from bench.nano.data.source import Source
from bench.nano.data.tools import Ability
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort
from gptoss_local.harmony.message import Tool

BANK = banks("talk")
WORDS = banks("words")

SORRY = (
    "Sorry, I am only a tiny demo model and I can't help with that. You can ask me for a capital,"
    " a sum, a tool call, or to repeat some text."
)
COUNTRIES = tuple(CAPITALS)


def _chat(source: Source, effort: Effort) -> Branch:
    prompt, intent = draw_small_talk(source)
    analysis = thought(effort, BANK.THOUGHTS["chat"], meaning=intent.meaning)
    return to_branch(source, "chat", Exchange(prompt, Answer(intent.answer, analysis)))


def _fallback(source: Source, effort: Effort) -> Branch:
    (draw,) = source.rng.choices(tuple(DRAWS), tuple(DRAWS.values()))
    return _declined(source, effort, draw(source) if callable(draw) else _filled(source, draw))


def _fallback_without_tools(source: Source, effort: Effort) -> Branch:
    kind = source.rng.random()
    if kind < 0.5:
        return _declined(source, effort, _filled(source, BANK.WITHOUT_TOOLS))
    if kind < 0.7:
        return _declined(source, effort, _filled(source, BANK.HERE_WITHOUT_TOOLS))
    role = source.choice(("shell", "read", "list", "search", "create"))
    task = draw_task(source, Ability(role, Tool(name=role), lambda _slots: {}))
    return _declined(source, effort, request(source, task))


def _declined(source: Source, effort: Effort, prompt: str) -> Branch:
    exchange = Exchange(prompt, Answer(SORRY, thought(effort, BANK.THOUGHTS["sorry"])))
    return to_branch(source, "fallback", exchange)


def _filled(source: Source, phrasings: tuple[str, ...]) -> str:
    names = (*SLOTS, *(f"{name}2" for name in SLOTS))
    marked = phrase(source, phrasings, ask=False, **{name: f"\0{name}\0" for name in names})
    return re.sub("\0([a-z]+)2?\0", lambda slot: SLOTS[slot[1]](source), marked)


def _wrong_capital(source: Source) -> str:
    def invented() -> str:
        return source.invented().capitalize()

    draws: tuple[Callable[[], str], ...] = (
        source.city, source.city, invented, invented, lambda: source.choice(BANK.REGIONS),
        source.person, lambda: f"the {source.noun()}", source.token_word,
    )  # fmt: skip
    while is_country(subject := source.choice(draws)()):
        pass
    return ask_capital(source, subject)


def _large_sum(source: Source) -> str:
    large, other = source.rng.randrange(1000, 100_000), source.rng.randrange(20_000)
    return ask_sum(source, *((large, other) if source.chance(0.6) else (other, large)))


def _sentences(source: Source) -> str:
    return " ".join(source.sentence() for _ in range(source.choice((1, 1, 2, 3))))


def _random_text(source: Source) -> str:
    while True:
        n = source.rng.randint(1, 12)
        if source.chance(0.4):
            kinds = WORDS.NOUNS, WORDS.ADJECTIVES, WORDS.VERBS
            text = " ".join(source.choice(source.choice(kinds)) for _ in range(n))
        else:
            text = source.tokens(n) if source.chance(0.7) else source.token_word()
        if text.lower() not in ALL_MESSAGES and not is_country(text):
            return text


def _long_text(source: Source) -> str:
    n = round(math.exp(source.rng.uniform(math.log(5), math.log(200))))
    if source.chance(0.4):
        return " ".join(source.sentence() for _ in range(max(4, n // 2)))
    text = _sentences(source) if source.chance(0.7) else _random_text(source)
    return source.choice((" ", " ", "\n")).join([text] * n)


def _topic(source: Source) -> str:
    kind = source.rng.random()
    if kind < 0.45:
        return source.choice(BANK.TOPICS)
    adjective, noun = source.adjective(), source.noun()
    if kind < 0.6:
        return f"the {adjective} {noun}"
    if kind < 0.75:
        return f"{noun}s"
    if kind < 0.85:
        return f"{adjective} {noun}s"
    return source.city() if kind < 0.9 else f"{source.token_word()} {noun}"


def _text(source: Source) -> str:
    return source.drawn(
        (0.5, source.sentence), (0.9, lambda: _random_text(source)), (1, source.invented)
    )


SLOTS: dict[str, Callable[[Source], str]] = {
    "noun": Source.noun, "adj": Source.adjective, "topic": _topic, "person": Source.person,
    "city": Source.city, "country": lambda s: s.choice(COUNTRIES), "text": _text,
    "language": lambda s: s.choice(BANK.LANGUAGES), "word": Source.token_word,
    "program": lambda s: s.choice(BANK.PROGRAMMING_LANGUAGES),
    "task": lambda s: s.choice(BANK.TASKS).format(noun=s.noun()),
    "form": lambda s: s.choice(BANK.FORMS), "code": lambda s: s.code(s.rng.randint(1, 6)),
    "path": lambda s: s.choice((draw_file, draw_folder))(s),
    **dict.fromkeys("nm", lambda s: str(s.rng.randrange(2, s.choice((20, 100, 1000))))),
}  # fmt: skip
DRAWS: dict[tuple[str, ...] | Callable[[Source], str], float] = {
    BANK.WRITING: 8, BANK.EXPLAIN: 14, BANK.ADVICE: 14, BANK.MATHS: 14, BANK.LANGUAGE: 9,
    BANK.OTHER_SENSE: 16, BANK.CODING: 9, BANK.LOOSE: 6, _wrong_capital: 8, _large_sum: 4,
    _sentences: 3, _random_text: 5, _long_text: 4,
}  # fmt: skip
BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {
    "chat": _chat,
    "fallback": _fallback,
    "fallback_without_tools": _fallback_without_tools,
}
"""`fallback_without_tools` is only for documents that declare no tool which could answer."""
