"""Counting up, down and in steps, and knowing when to stop."""

from collections.abc import Callable

from bench.nano.data.document import Answer
from bench.nano.data.exchange import Exchange, on_our_side
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.types import Effort

BANK = banks("counting")

# Counts: {a} and {b}
# {by} is "twos", "2s" or "2"; {step} is always the number.
STEP_WORDS = {2: "twos", 3: "threes", 4: "fours", 5: "fives", 10: "tens", 20: "twenties"}
_EVERYBODYS = 30  # ends of short counts


def draw_count(source: Source, effort: Effort) -> Exchange:
    """Ask for numbers: up, down or in steps."""
    kind = source.rng.random() * (1 if source.held_out else 1.3)  # for training, more in steps
    if kind < 0.44:
        a, b = _span(source, lambda s: (1, _last(s)))
        return _counted(source, effort, _ask_count(source, a, b), range(a, b + 1))
    if kind < 0.62:
        a, b = _span(source, _window)
        return _counted(source, effort, _ask_count(source, a, b), range(a, b + 1))
    if kind < 0.76:
        return _draw_count_down(source, effort)
    return _draw_count_in_steps(source, effort)


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
        is_between = source.chance(0.4 if source.held_out else 0.7)  # two numbers of the answer
        return a, b + (source.rng.randrange(step) if is_between else 0)

    a, b = _span(source, draw)
    by = source.choice((STEP_WORDS[step], STEP_WORDS[step], f"{step}s", str(step)))
    template = BANK.COUNT_STEPS_FROM_STEP if a == step else BANK.COUNT_STEPS
    prompt = phrase(source, template, a=a, b=b, by=by, step=step)
    return _counted(source, effort, prompt, range(a, b + 1, step))


def _counted(source: Source, effort: Effort, prompt: str, numbers: range) -> Exchange:
    """Answer with the numbers; now and then one per line, which the prompt then says."""
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
    medium = f"I {way} from {first} and {end}.{lines}"
    high = (
        f"The user wants me to {way}. I start at {first}. I {moves}. I must not skip a number. "
        f"I {end}.{lines}"
    )
    analysis = {"low": "", "medium": medium, "high": high}[effort]
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
    return on_our_side(source, draw, lambda ends: f"count {ends[0]} {ends[1]}")


def _last(source: Source) -> int:
    """Where a count from 1 stops: often soon, and once in a while far away."""
    kind = source.rng.random()
    if kind < 0.01:
        return source.rng.randint(301, 999)
    return source.rng.randint(2, 300 if kind < 0.08 else 120 if kind < 0.4 else 30)


def _window(source: Source) -> tuple[int, int]:
    span = int(2 ** source.rng.uniform(0, 5.93))
    a = source.rng.randrange(0, 100 if source.chance(0.5) else 1000 - span)
    return a, a + span
