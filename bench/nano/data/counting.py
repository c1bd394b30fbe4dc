"""Counting up, down and in steps, and knowing when to stop."""

from collections.abc import Callable

from bench.nano.data.document import Answer
from bench.nano.data.exchange import Exchange, on_our_side
from bench.nano.data.small_talk_phrasings import combine
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from gptoss_local.types import Effort

# Counts: {a} and {b}
# fmt: off
_SPAN = (
    "from {a} to {b}|from {a} up to {b}|{a} to {b}|from {a} until {b}|from {a} through {b}"
    "|{a} through {b}|from number {a} to number {b}|starting at {a} and ending at {b}"
)
_NUMBERS = (
    "the numbers|all numbers|all the numbers|every number|the integers|numbers|all integers"
    "|the whole numbers"
)
_LIST = (
    "List|Write|Write out|Write down|Print|Show|Show me|Give me|Say|Enumerate|Output|Name|Recite"
    "|Tell me|Type|Display"
)
COUNT_REQUESTS = (
    *combine("Count|count|Count for me|Count with me|Now count|Count out|Count up|Count out loud"
             "|Count:"
             "|Count slowly|Please count|Start counting|Begin counting"
             "|Continue counting", _SPAN, ".|"),
    *combine(_LIST, _NUMBERS, "from {a} to {b}|{a} to {b}|from {a} up to {b}|{a} through {b}", "."),
    *combine(_LIST, _NUMBERS, "starting at {a} and ending at {b}"
             "|between {a} and {b}, both included"),
    *combine("Start|Begin|Start counting|Begin counting|start|begin", "at {a} and|with {a} and"
             "|from {a} and|at {a},|with {a},", "count to {b}|count up to {b}|go up to {b}"
             "|stop at {b}"
             "|end at {b}|end with {b}", ".|"),
    *combine("Count|count|Count up|count up|Count all the way", "to {b}|up to {b}|until {b}",
             ", starting at {a}|, starting with {a}|, starting from {a}|, beginning at {a}"
             "|, beginning with {a}", ".|"),
    *combine("Count|count|Enumerate|Count:|count:|List|Print|Output|Numbers:", "{a}-{b}|{a}..{b}"
             "|{a} to {b}|{a} - {b}|{a} ... {b}"),
    *combine("Do|Make|Give me|Show me|Write|Start", "a count|the count|a list of numbers"
             "|a full count",
             "from {a} to {b}|from {a} up to {b}|from {a} until {b}", ".|"),
    *combine("Count|Go|Go on|Continue", "from {a} to {b}|from {a} up to {b}", ", counting."
             "|, one by one."
             "|without a gap.|without gaps.|, no gaps.|, counting one by one."),
)
COUNT_QUESTIONS = (
    *combine("Can you count|can you count|Could you count|Are you able to count|Will you count"
             "|Would you count|could you please count|Can you please count"
             "|do you know how to count",
             _SPAN, "?|"),
    *combine("What are|Which are|what are|which are|Can you list|can you write|could you list"
             "|Could you write|Can you give me|can you show me|do you know", _NUMBERS, _SPAN, "?"),
    *combine("What numbers|Which numbers|what numbers|which numbers", "are there|come|do I get|are",
             "from {a} to {b}|from {a} up to {b}", "?|"),
    *combine("Numbers|numbers|all numbers|the numbers|All the numbers|the integers|every number",
             _SPAN, "|?|, please|please"),
    *combine("From {a} to {b}|from {a} to {b}|From {a} up to {b}|from {a} up to {b}|{a} to {b}",
             ": count!|, count|: numbers|, all numbers|, counting|: count|, the numbers"
             "|, please count"),
    *combine("I want you to|I need you to|I would like you to|You should|you have to|you can",
             "count|list the numbers|write the numbers|say the numbers", _SPAN, ".|"),
    *combine("I need|I want|I would like|I want to see|I would like to see|I need to see", _NUMBERS,
             "from {a} to {b}|{a} to {b}|from {a} up to {b}", ".|"),
)
COUNT_FROM_ONE = (
    *combine("Count|count|Count up|count up|Now count|Count for me|Count with me|Please count"
             "|Count all the"
             " way|Count on|Start counting|Begin counting", "to {b}|up to {b}|until {b}"
             "|as far as {b}"
             "|to the number {b}|up to the number {b}|to number {b}", ".||for me|, please"),
    *combine("Count|count|Count up|Now count|Please count|Start counting", "from one to {b}"
             "|from one up to {b}|from one until {b}|, starting at one, to {b}", ".||for me"
             "|, please"),
    *combine(_LIST, "the first {b} numbers|the numbers from one to {b}|all numbers from one to {b}"
             "|all numbers up to {b}|the numbers up to {b}", ".|"),
    *combine("Start|Begin", "at one and|with one and|from one and", "count to {b}|count up to {b}"
             "|stop at {b}", ".|"),
    *combine("Show|Show me|Prove|Let me see", "that you can|how you", "count to {b}|count up to {b}"
             "|count from one to {b}", ".|"),
)
_DOWN = (
    "from {a} to {b}|from {a} until {b}|{a} to {b}|, starting at {a}, ending at {b}"
    "|starting at {a} and ending at {b}"
)
COUNT_DOWN = (
    *combine("Count|Now count|Please count|count|Start counting|Count for me", "down|backwards"
             "|backward"
             "|in reverse|downwards|in reverse order|in descending order", _DOWN, ".|"),
    *combine("Count|Now count|Go|count|Start counting|Count for me", "from {a} down to {b}"
             "|from {a} backwards to {b}|from {a} back to {b}|{a} down to {b}"
             "|from {a} downwards to {b}"
             "|{a} back to {b}", ".|"),
    *combine(_LIST, "the numbers|all numbers|all the numbers|numbers", "from {a} down to {b}"
             "|from {a} back to {b}|{a} down to {b}|from {a} backwards to {b}", ".|"),
    *combine(_LIST, "the numbers|all numbers|all the numbers|numbers", "from {a} to {b}|{a} to {b}",
             "in reverse.|in descending order.|backwards.|in reverse order.|, backwards."
             "|downwards."),
    *combine("Do|Give me|Run|Start|Make|Write|Show me|", "a countdown|the countdown|countdown",
             "from {a} to {b}|{a} to {b}|that starts at {a} and stops at {b}"
             "|from {a} down to {b}", ".|"),
    *combine("Start|Begin|Start counting", "at {a} and|with {a} and|from {a} and",
             "count down to {b}"
             "|go backwards to {b}|go down to {b}|count backwards to {b}|count back to {b}", ".|"),
    *combine("Count|count|Count numbers", "from {a} to {b}", ".|"),
)
COUNT_DOWN_TO_ONE = (
    *combine("Count|Now count|Please count|count|Start counting|Count for me", "down|backwards"
             "|backward"
             "|downwards|in reverse", "from {a}|from {a} to one|from {a} until one|starting at {a}"
             "|starting from {a}", ".|"),
    *combine("Do|Give me|Run|Start|Make|Write|Show me|", "a countdown|the countdown|countdown",
             "from {a}|from {a} to one|starting at {a}|from {a} down to one", ".|"),
)
# {by} is "twos", "2s" or "2"; {step} is always the number.
_STEP = (
    "by {by}|in steps of {step}|with a step of {step}|with steps of {step}|, counting by {by}"
    "|with step {step}|, but by {by}|, going by {by}|, but in steps of {step}"
)
COUNT_STEPS = (
    *combine("Count|count|Skip count|Now count|Count up|Go|Count for me"
             "|Please count", _SPAN, _STEP, ".|"),
    *combine("Count|count|Skip count|Count up|Now count|Go|Please count", "by {by}|in {by}"
             "|in steps of {step}|with a step of {step}", "from {a} to {b}|from {a} up to {b}"
             "|: {a} to {b}"
             "|, starting at {a}, up to {b}|, starting with {a}, to {b}|, from {a} until {b}", "."
             "|"),
    *combine(_LIST, "the numbers|numbers|all numbers", "from {a} to {b}|{a} to {b}"
             "|from {a} up to {b}",
             _STEP, "."),
    *combine("Start|Begin|Start counting", "at {a} and|with {a} and|from {a} and", "count to {b}"
             "|count up to {b}|go up to {b}|go to {b}", "by {by}.|in steps of {step}."
             "|with step {step}."),
    *combine("Start|Begin|Start counting", "at {a},|with {a},|from {a},", "add {step} each time,"
             "|add {step} every time,|go up by {step} each time,|go in steps of {step},",
             "stop at {b}."
             "|and stop at {b}.|and end at {b}.|up to {b}."),
)
COUNT_STEPS_FROM_STEP = (
    *combine("Count|count|Skip count|Count up|Now count|Count for me|Please count", "by {by}"
             "|in {by}"
             "|in steps of {step}|with a step of {step}", "to {b}|up to {b}|until {b}", ".|"),
    *combine("Count|count|Skip count|Count up|Now count|Count for me|Please count", "to {b}"
             "|up to {b}"
             "|until {b}", "by {by}|in {by}|in steps of {step}|, going by {by}"
             "|with a step of {step}"
             "|, counting by {by}", ".|"),
)
PER_LINE_TAILS = (
    ", one number per line.", ", one per line.", " with one number per line.",
    ", each on its own line.", ", each number on a new line.", " on separate lines.",
    ", one per line", ", one number on each line.", " line by line.", ". One number per line.",
    ". Put every number on its own line.", " (one per line)",
    ", with a line break after each number.", ". Use one line per number.",
    ", one below the other.",
)  # fmt: skip
PER_LINE_HEADS = (
    "One number per line: ", "one per line: ", "On separate lines: ",
    "Each number on its own line: ", "Line by line: ", "With one number per line: ",
    "Use one line per number. ",
)  # fmt: skip
# fmt: on
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
        return phrase(source, COUNT_FROM_ONE, b=b)
    if source.chance(0.75):
        return phrase(source, COUNT_REQUESTS, a=a, b=b)
    return phrase(source, COUNT_QUESTIONS, ask=False, a=a, b=b)


def _draw_count_down(source: Source, effort: Effort) -> Exchange:
    to_one = source.chance(0.4)
    b, a = _span(source, (lambda s: (1, min(_last(s), 120))) if to_one else _window)
    if to_one and source.chance(0.5):
        prompt = phrase(source, COUNT_DOWN_TO_ONE, a=a)
    else:
        prompt = phrase(source, COUNT_DOWN, a=a, b=b)
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
    template = COUNT_STEPS_FROM_STEP if a == step else COUNT_STEPS
    prompt = phrase(source, template, a=a, b=b, by=by, step=step)
    return _counted(source, effort, prompt, range(a, b + 1, step))


def _counted(source: Source, effort: Effort, prompt: str, numbers: range) -> Exchange:
    """Answer with the numbers; now and then one per line, which the prompt then says."""
    joint, lines = ", ", ""
    if source.chance(0.2):
        joint, lines = "\n", " I write one number per line."
        if source.chance(0.8):
            prompt = prompt.rstrip(".?! ") + source.choice(PER_LINE_TAILS)
        else:
            prompt = source.choice(PER_LINE_HEADS) + prompt
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
