"""What the model knows by itself: capitals, sums up to three digits, counting.

`capitals_list` and `knowledge_phrasings` hold the facts and the wording, `counting` counts. This
module makes the other answers, and finished small exchanges that can stand before any question.
"""

from collections.abc import Callable
from itertools import zip_longest

from bench.nano.data.capitals_list import BANK as COUNTRY_BANK
from bench.nano.data.capitals_list import CAPITALS, spell
from bench.nano.data.counting import draw_count, draw_short_count
from bench.nano.data.document import Answer, Branch
from bench.nano.data.exchange import Exchange, on_our_side
from bench.nano.data.small_talk import draw_small_talk
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("knowledge")
bank = banks("knowledge")

COUNTRIES = tuple(CAPITALS)


def earlier_turns(source: Source, n: int) -> tuple[Message, ...]:
    """Draw finished small exchanges, to stand in front of any question.

    Args:
        n: How many; each is a user's message and the assistant's answer without its reasoning.
    """
    return tuple(message for _ in range(n) for message in _earlier_turn(source))


def to_branch(source: Source, skill: str, exchange: Exchange, *earlier: Message) -> Branch:
    """Make a question a branch, often behind small finished exchanges and those given."""
    if source.chance(0.3):
        earlier = earlier_turns(source, source.choice((1, 1, 2))) + earlier
    answer, opens_final = exchange.answer, source.chance(0.08)
    if opens_final:
        answer = Answer(answer.text)
    messages = (*earlier, Message(role="user", content=exchange.prompt))
    return Branch(skill, messages, answer, opens_final=opens_final)


def ask_capital(source: Source, subject: str) -> str:
    """Ask for the capital of anything."""
    if source.chance(0.3):
        return phrase(source, bank.CAPITAL_REQUESTS, country=subject)
    text = phrase(source, bank.CAPITAL_QUESTIONS, ask=False, country=subject)
    return _opened(source, text)


def ask_sum(source: Source, a: int, b: int) -> str:
    """Ask for a sum."""
    kind = source.rng.random()
    if kind < 0.15:
        name = source.choice(("Anna", "Tom", "My friend", "Maria", "Ben", "My brother"))
        thing = source.choice(BANK.THINGS)
        return phrase(source, bank.SUM_STORIES, ask=False, a=a, b=b, thing=thing, name=name)
    if kind < 0.5:
        return _opened(source, phrase(source, bank.SUM_QUESTIONS, ask=False, a=a, b=b))
    if kind < 0.7:
        return _opened(source, phrase(source, bank.SUM_WORD_QUESTIONS, ask=False, a=a, b=b))
    requests = bank.SUM_REQUESTS if kind < 0.85 else bank.SUM_WORD_REQUESTS
    return phrase(source, requests, a=a, b=b)


def _opened(source: Source, text: str) -> str:
    return source.choice(BANK.QUESTION_OPENERS) + text if source.chance(0.12) else text


def _turn(prompt: str, answer: str) -> tuple[Message, Message]:
    return Message(role="user", content=prompt), Message(role="assistant", content=answer)


def _earlier_turn(source: Source) -> tuple[Message, Message]:
    kind = source.rng.random()
    if kind < 0.4:
        prompt, intent = draw_small_talk(source)
        return _turn(prompt, intent.answer)
    draw = _draw_capital if kind < 0.7 else _draw_sum if kind < 0.9 else draw_short_count
    exchange = draw(source, "low")
    return _turn(exchange.prompt, exchange.answer.text)


def _capital(source: Source, effort: Effort) -> Branch:
    if not source.chance(0.15):
        return to_branch(source, "capital", _draw_capital(source, effort))
    earlier = [_draw_capital(source, effort)]
    while source.chance(0.3):
        earlier.append(_draw_follow_up(source, effort))
    turns = (message for e in earlier for message in _turn(e.prompt, e.answer.text))
    return to_branch(source, "capital", _draw_follow_up(source, effort), *turns)


def _draw_capital(source: Source, effort: Effort) -> Exchange:
    country = source.choice(COUNTRIES)
    return Exchange(ask_capital(source, _typed(source, country)), _capital_answer(country, effort))


def _draw_follow_up(source: Source, effort: Effort) -> Exchange:
    country = source.choice(COUNTRIES)
    typed = _typed(source, country)
    prompt = phrase(source, bank.CAPITAL_FOLLOW_UPS, ask=False, country=typed)
    return Exchange(prompt, _capital_answer(country, effort))


def _typed(source: Source, country: str) -> str:
    """A country as people type it."""
    name = country
    if country in COUNTRY_BANK.OTHER_NAMES and source.chance(0.5):
        name = source.choice(COUNTRY_BANK.OTHER_NAMES[country])
    elif country in COUNTRY_BANK.WITH_ARTICLE and source.chance(0.6):
        name = spell(country)
    style = source.rng.random()
    if style < 0.2:
        return name.lower()
    return name.upper() if style < (0.23 if source.held_out else 0.32) else name


def _capital_answer(country: str, effort: Effort) -> Answer:
    name, capital = spell(country), CAPITALS[country]
    stop = "" if capital.endswith(".") else "."
    fact = f"The capital of {name} is {capital}{stop}"
    medium = f"The user asks for the capital of {name}. It is {capital}{stop}"
    high = (
        f"The user asks for the capital of {name}. I know the country and must not confuse its "
        f"capital with another large city. {fact} I will answer in one sentence."
    )
    return Answer(fact, {"low": "", "medium": medium, "high": high}[effort])


def _sum(source: Source, effort: Effort) -> Branch:
    return to_branch(source, "add", _draw_sum(source, effort))


def _draw_sum(source: Source, effort: Effort) -> Exchange:
    if source.chance(0.06):
        return _draw_three(source, effort)
    a, b = on_our_side(source, _operands, lambda n: f"{min(n)}+{max(n)}")
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
    medium = f"{a}+{b}: {', '.join(steps)}, so {total}."
    high = (
        f"The user wants the sum of {a} and {b}. I add digit by digit and carry. {named} "
        f"So {a}+{b}={total}. Check: {total}-{b}={a}."
    )
    return Answer(f"{a} + {b} = {total}", {"low": "", "medium": medium, "high": high}[effort])


def _digit_steps(a: int, b: int) -> list[str]:
    """Add as on paper, from the ones; every number in it is small, hence one easy token."""
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

    a, b, c = on_our_side(source, draw, lambda n: "+".join(map(str, sorted(n))))
    rest = f"{b} + {c}"
    if source.chance(0.5):
        prompt = _opened(source, phrase(source, bank.SUM_QUESTIONS, ask=False, a=a, b=rest))
    else:
        prompt = phrase(source, bank.SUM_REQUESTS, a=a, b=rest)
    first, total = a + b, a + b + c
    medium = f"{a}+{b}={first}, {first}+{c}={total}, so {total}."
    high = (
        f"The user wants the sum of {a}, {b} and {c}. I add one after the other. First: "
        f"{a}+{b}={first}. Then: {first}+{c}={total}. So {a}+{b}+{c}={total}."
    )
    analysis = {"low": "", "medium": medium, "high": high}[effort]
    return Exchange(prompt, Answer(f"{a} + {b} + {c} = {total}", analysis))


def _count(source: Source, effort: Effort) -> Branch:
    return to_branch(source, "count", draw_count(source, effort))


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {
    "capital": _capital,
    "add": _sum,
    "count": _count,
}
