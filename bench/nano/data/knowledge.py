"""What the model says by itself: small talk, capitals, sums up to three digits, counting."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from bench.nano.data.document import Answer, Branch, thought
from bench.nano.data.source import Source, is_held_out
from bench.nano.data.tools import assistant, user
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort
from gptoss_local.harmony.message import Message

BANK = banks("knowledge")

CAPITALS: dict[str, str] = dict(BANK.CAPITALS)
_NAMES = {*CAPITALS, *(name for names in BANK.OTHER_NAMES.values() for name in names)}
_LOWER_NAMES = frozenset(name.lower() for name in _NAMES)


def is_country(name: str) -> bool:
    """Whether the name, in any case, is one that the model has an answer for."""
    return name.lower().removeprefix("the ") in _LOWER_NAMES


def spell(country: str) -> str:
    """Name a country as it stands inside a sentence."""
    return f"the {country}" if country in BANK.WITH_ARTICLE else country


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer, without the conversation around it."""

    prompt: str
    answer: Answer


def not_held_out(source: Source, draw: Callable[[Source], T], key: Callable[[T], str]) -> T:
    """Draw numbers until they are not held out."""
    while is_held_out(key(value := draw(source))):
        pass
    return value


# Counts: {a} and {b}
# {by} is "twos", "2s" or "2"; {step} is always the number.
STEP_WORDS = {2: "twos", 3: "threes", 4: "fours", 5: "fives", 10: "tens", 20: "twenties"}
_EVERYBODYS = 30  # ends of short counts


def draw_count(source: Source, effort: Effort) -> Exchange:
    """Ask for numbers: up, down or in steps."""
    kind = source.rng.random() * 1.3  # more in steps
    if kind < 0.62:
        a, b = _span(source, (lambda s: (1, _last(s))) if kind < 0.44 else _window)
        return _counted(source, effort, _ask_count(source, a, b), range(a, b + 1))
    return (_draw_count_down if kind < 0.76 else _draw_count_in_steps)(source, effort)


def draw_short_count(source: Source, effort: Effort) -> Exchange:
    """Ask for a few numbers only."""
    a, b = _span(source, lambda s: (1, s.rng.randint(2, 20)))
    return _counted(source, effort, _ask_count(source, a, b), range(a, b + 1))


def _ask_count(source: Source, a: int, b: int) -> str:
    if a == 1 and source.chance(0.4):
        return phrase(source, BANK.COUNT_FROM_ONE, b=b)
    if source.chance(0.75):
        return phrase(source, BANK.COUNT_REQUESTS, a=a, b=b)
    return phrase(source, BANK.COUNT_QUESTIONS, ask=False, a=a, b=b)


def _draw_count_down(source: Source, effort: Effort) -> Exchange:
    to_one = source.chance(0.4)
    b, a = _span(source, (lambda s: (1, min(_last(s), 120))) if to_one else _window)
    if to_one and source.chance(0.5):
        prompt = phrase(source, BANK.COUNT_DOWN_TO_ONE, a=a)
    else:
        prompt = phrase(source, BANK.COUNT_DOWN, a=a, b=b)
    return _counted(source, effort, prompt, range(a, b - 1, -1))


def _draw_count_in_steps(source: Source, effort: Effort) -> Exchange:
    step = source.choice((2, 2, 2, 3, 4, 5, 5, 10, 10, 20))

    def draw(source: Source) -> tuple[int, int]:
        a = step * source.rng.randrange(10) if source.chance(0.6) else source.rng.randrange(100)
        b = a + step * source.rng.randint(1, min(40, 800 // step))
        is_between = source.chance(0.7)  # two numbers of the answer
        return a, b + (source.rng.randrange(step) if is_between else 0)

    a, b = _span(source, draw)
    by = source.choice((STEP_WORDS[step], STEP_WORDS[step], f"{step}s", str(step)))
    template = BANK.COUNT_STEPS_FROM_STEP if a == step else BANK.COUNT_STEPS
    prompt = phrase(source, template, a=a, b=b, by=by, step=step)
    return _counted(source, effort, prompt, range(a, b + 1, step))


def _counted(source: Source, effort: Effort, prompt: str, numbers: range) -> Exchange:
    joint, lines = ", ", ""
    if source.chance(0.2):
        joint, lines = "\n", " I write one number per line."
        if source.chance(0.8):
            prompt = prompt.rstrip(".?! ") + source.choice(BANK.PER_LINE_TAILS)
        else:
            prompt = source.choice(BANK.PER_LINE_HEADS) + prompt
    first, step = numbers[0], numbers.step
    bound = numbers.stop - (1 if step > 0 else -1)
    # Where steps end would have to be computed; that the next one is too far can be seen.
    end = f"stop at {bound}" if abs(step) == 1 else f"do not go beyond {bound}"
    way = "count down" if step < 0 else f"count by {step}" if step > 1 else "count"
    moves = f"go {'down' if step < 0 else 'up'} by {abs(step)} each time"
    analysis = thought(
        effort, BANK.THOUGHTS["counted"], way=way, first=first, end=end, lines=lines, moves=moves
    )
    return Exchange(prompt, Answer(joint.join(map(str, numbers)), analysis))


def _span(source: Source, draw: Callable[[Source], tuple[int, int]]) -> tuple[int, int]:
    """Draw two ends. Short counts from 1 are on both sides of the split.

    There are few of them, and the first thing that people try: who has never seen one that ends at
    16 takes 16 for a number that no count ends at.
    """
    if source.chance(0.01):
        return 1, 1
    ends = draw(source)
    if ends[0] == 1 and ends[1] <= _EVERYBODYS:
        return ends
    return not_held_out(source, draw, lambda ends: f"count {ends[0]} {ends[1]}")


def _last(source: Source) -> int:
    kind = source.rng.random()
    if kind < 0.01:
        return source.rng.randint(301, 999)
    return source.rng.randint(2, 300 if kind < 0.08 else 120 if kind < 0.4 else 30)


def _window(source: Source) -> tuple[int, int]:
    span = int(2 ** source.rng.uniform(0, 5.93))
    a = source.rng.randrange(0, 100 if source.chance(0.5) else 1000 - span)
    return a, a + span


@dataclass(frozen=True, slots=True)
class Intent:
    """What a short message wants."""

    meaning: str
    answer: str
    bank: tuple[str, ...]
    weight: int
    opens: bool = True


INTENTS = tuple(
    Intent(**{**intent, "bank": getattr(BANK, intent["bank"])}) for intent in BANK.INTENTS
)
_THANKED = re.compile("(?i)^(?!(oh )?(no|nah)).*(thank|thx)")
ALL_MESSAGES = frozenset(text.lower().strip(".!? ") for intent in INTENTS for text in intent.bank)


def draw_small_talk(source: Source) -> tuple[str, Intent]:
    """Draw a short message and what it wants."""
    (intent,) = source.rng.choices(INTENTS, [intent.weight for intent in INTENTS])
    text = _phrase(source, intent)
    if source.chance(0.4):
        text = text[0].upper() + text[1:]
    if intent.opens and source.chance(0.15):
        text = source.choice(BANK.OPENERS) + text
    if source.chance(0.45):
        text = text.rstrip(".!?") + source.choice(BANK.ENDINGS)
    return text, intent


def _phrase(source: Source, intent: Intent) -> str:
    while True:
        text = phrase(source, intent.bank, ask=False)
        if intent.opens or intent.bank is BANK.THANKS or not _THANKED.search(text):
            return text


COUNTRIES = tuple(CAPITALS)


def earlier_turns(source: Source, n: int) -> tuple[Message, ...]:
    """Draw finished small exchanges, to stand in front of any question."""
    messages: list[Message] = []
    for _ in range(n):
        kind = source.rng.random()
        if kind < 0.4:
            prompt, intent = draw_small_talk(source)
            messages += [user(prompt), assistant(intent.answer)]
        else:
            draw = _draw_capital if kind < 0.7 else _draw_sum if kind < 0.9 else draw_short_count
            messages += _turn(draw(source, "low"))
    return tuple(messages)


def to_branch(source: Source, skill: str, exchange: Exchange, *earlier: Message) -> Branch:
    """Make a question a branch, often behind small finished exchanges and those given."""
    if source.chance(0.3):
        earlier = earlier_turns(source, source.choice((1, 1, 2))) + earlier
    answer, opens_final = exchange.answer, source.chance(0.08)
    if opens_final:
        answer = Answer(answer.text)
    messages = (*earlier, user(exchange.prompt))
    return Branch(skill, messages, answer, opens_final=opens_final)


def ask_capital(source: Source, subject: str) -> str:
    """Ask for the capital of anything."""
    if source.chance(0.3):
        return phrase(source, BANK.CAPITAL_REQUESTS, country=subject)
    text = phrase(source, BANK.CAPITAL_QUESTIONS, ask=False, country=subject)
    return _opened(source, text)


def ask_sum(source: Source, a: int, b: int) -> str:
    """Ask for a sum."""
    kind = source.rng.random()
    if kind < 0.15:
        name = source.choice(("Anna", "Tom", "My friend", "Maria", "Ben", "My brother"))
        thing = source.choice(BANK.THINGS)
        return phrase(source, BANK.SUM_STORIES, ask=False, a=a, b=b, thing=thing, name=name)
    if kind < 0.5:
        return _opened(source, phrase(source, BANK.SUM_QUESTIONS, ask=False, a=a, b=b))
    if kind < 0.7:
        return _opened(source, phrase(source, BANK.SUM_WORD_QUESTIONS, ask=False, a=a, b=b))
    requests = BANK.SUM_REQUESTS if kind < 0.85 else BANK.SUM_WORD_REQUESTS
    return phrase(source, requests, a=a, b=b)


def _opened(source: Source, text: str) -> str:
    return source.choice(BANK.QUESTION_OPENERS) + text if source.chance(0.12) else text


def _turn(exchange: Exchange) -> tuple[Message, Message]:
    return user(exchange.prompt), assistant(exchange.answer.text)


def _capital(source: Source, effort: Effort) -> Branch:
    if not source.chance(0.15):
        return to_branch(source, "capital", _draw_capital(source, effort))
    earlier = [_draw_capital(source, effort)]
    while source.chance(0.3):
        earlier.append(_draw_follow_up(source, effort))
    turns = (message for e in earlier for message in _turn(e))
    return to_branch(source, "capital", _draw_follow_up(source, effort), *turns)


def _draw_capital(source: Source, effort: Effort) -> Exchange:
    country = source.choice(COUNTRIES)
    return Exchange(ask_capital(source, _typed(source, country)), _capital_answer(country, effort))


def _draw_follow_up(source: Source, effort: Effort) -> Exchange:
    country = source.choice(COUNTRIES)
    typed = _typed(source, country)
    prompt = phrase(source, BANK.CAPITAL_FOLLOW_UPS, ask=False, country=typed)
    return Exchange(prompt, _capital_answer(country, effort))


def _typed(source: Source, country: str) -> str:
    name = country
    if country in BANK.OTHER_NAMES and source.chance(0.5):
        name = source.choice(BANK.OTHER_NAMES[country])
    elif country in BANK.WITH_ARTICLE and source.chance(0.6):
        name = spell(country)
    style = source.rng.random()
    if style < 0.2:
        return name.lower()
    return name.upper() if style < 0.32 else name


def _capital_answer(country: str, effort: Effort) -> Answer:
    name, capital = spell(country), CAPITALS[country]
    stop = "" if capital.endswith(".") else "."
    fact = f"The capital of {name} is {capital}{stop}"
    slots = {"name": name, "capital": capital, "stop": stop, "fact": fact}
    return Answer(fact, thought(effort, BANK.THOUGHTS["capital"], **slots))


def _draw_sum(source: Source, effort: Effort) -> Exchange:
    if source.chance(0.06):
        return _draw_three(source, effort)
    a, b = not_held_out(source, _operands, lambda n: f"{min(n)}+{max(n)}")
    return Exchange(ask_sum(source, a, b), _sum_answer(a, b, effort))


def _operands(source: Source) -> tuple[int, int]:
    pick, kind = source.rng.randrange, source.rng.random()
    if kind < 0.08:
        return pick(10), pick(10)
    if kind < 0.45:
        return pick(100), pick(100)
    a, b = pick(1000), pick(100) if kind < 0.55 else pick(1000)
    if kind < 0.75 and a + b > 999:
        a, b = 999 - a, 999 - b  # mirrored, two large numbers have a small sum
    return (b, a) if source.chance(0.5) else (a, b)


def _sum_answer(a: int, b: int, effort: Effort) -> Answer:
    total, steps = a + b, _digit_steps(a, b)
    names = ("Ones", "Tens", "Hundreds")
    named = " ".join(f"{name}: {step}." for name, step in zip(names, steps, strict=False))
    slots = {"a": a, "b": b, "total": total, "named": named, "steps": ", ".join(steps)}
    return Answer(f"{a} + {b} = {total}", thought(effort, BANK.THOUGHTS["sum"], **slots))


def _digit_steps(a: int, b: int) -> list[str]:
    steps: list[str] = []
    carry = 0
    for x, y in zip_longest(reversed(str(a)), reversed(str(b)), fillvalue="0"):
        total = int(x) + int(y) + carry
        steps.append(f"{x}+{y}+{carry}={total}" if steps else f"{x}+{y}={total}")
        carry = total // 10
    return steps


def _draw_three(source: Source, effort: Effort) -> Exchange:
    def draw(source: Source) -> tuple[int, int, int]:
        return tuple(source.rng.randrange(1, 21) for _ in range(3))  # type: ignore[return-value]

    a, b, c = not_held_out(source, draw, lambda n: "+".join(map(str, sorted(n))))
    rest = f"{b} + {c}"
    if source.chance(0.5):
        prompt = _opened(source, phrase(source, BANK.SUM_QUESTIONS, ask=False, a=a, b=rest))
    else:
        prompt = phrase(source, BANK.SUM_REQUESTS, a=a, b=rest)
    first, total = a + b, a + b + c
    analysis = thought(effort, BANK.THOUGHTS["draw_three"], a=a, b=b, first=first, c=c, total=total)
    return Exchange(prompt, Answer(f"{a} + {b} + {c} = {total}", analysis))


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {
    "capital": _capital,
    "add": lambda source, effort: to_branch(source, "add", _draw_sum(source, effort)),
    "count": lambda source, effort: to_branch(source, "count", draw_count(source, effort)),
}
