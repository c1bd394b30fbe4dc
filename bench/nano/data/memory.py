"""Facts that the user tells, or that stand in a long text, and questions for them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.nano.data.document import Answer, Branch, Document, thought
from bench.nano.data.extract import BANK as EXTRACT
from bench.nano.data.extract import clock_time
from bench.nano.data.source import Source
from bench.nano.data.tools import assistant, user
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort
from gptoss_local.harmony.message import Message

BANK = banks("memory")
WORDS = banks("words")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about the user: sentences that tell and correct it, questions, and their answer."""

    draw: Callable[[Source], str]
    told: tuple[str, ...]
    corrected: tuple[str, ...]
    asked: tuple[str, ...]
    answer: str


def _first_name(source: Source) -> str:
    def draw() -> str:
        kind = source.rng.randrange(10)
        if kind < 2:
            return source.choice(WORDS.FIRST_NAMES)
        return (source.token_word() if kind < 5 else source.invented()).capitalize()

    return source.fresh(draw)


def _rare_word(source: Source) -> str:
    return source.fresh(lambda: source.token_word() if source.chance(0.6) else source.invented())


def _known_or_rare(options: tuple[str, ...]) -> Callable[[Source], str]:
    return lambda source: source.choice(options) if source.chance(0.65) else _rare_word(source)


def _birthday(source: Source) -> str:
    return f"{source.choice(EXTRACT.MONTHS)} {source.rng.randint(1, 28)}"


def _number(source: Source) -> str:
    return str(source.rng.randrange(10 ** source.rng.randint(1, 5)))


_DRAWS: dict[str, Callable[[Source], str]] = {
    "city": Source.city, "secret": Source.secret, "identifier": Source.identifier,
    "number": _number, "rare_word": _rare_word, "birthday": _birthday, "first_name": _first_name,
    "clock_time": clock_time, "age": lambda s: str(s.rng.randint(5, 99)),
    "colors": _known_or_rare(BANK.COLORS), "foods": _known_or_rare(BANK.FOODS),
    "jobs": _known_or_rare(BANK.JOBS), "person": Source.person,
}  # fmt: skip


def _fact(kind: str, subject: str, draw: str, other: str) -> Fact:
    fact = {
        name: tuple(text.replace("{subject}", subject) for text in texts)
        for name, texts in BANK.FACTS[kind].items()
        if name != "answer"
    }
    others = [] if other == "-" else [other]
    told = [t for text in fact["told"] for t in (others if text == "OTHERS" else [text])]
    answer = BANK.FACTS[kind]["answer"].replace("{subject}", subject)
    return Fact(_DRAWS[draw], tuple(told), fact["corrected"], fact["asked"], answer)


NAME = _fact("name", "", "person", "-")
OTHERS = tuple(_fact(*row) for row in BANK.OTHERS)


def tell_and_ask(source: Source, effort: Effort) -> Branch:
    """Make a conversation that ends in a question for a fact, or in a fact to acknowledge."""
    facts = _draw_facts(source)
    messages: list[Message] = []
    known: dict[Fact, str] = {}
    while facts:
        n_told = 2 if len(set(facts[:2])) == 2 and source.chance(0.15) else 1
        told, facts = facts[:n_told], facts[n_told:]
        values = {fact: fact.draw(source) for fact in told}
        content = _join([_tell(source, fact, values[fact], known) for fact in told])
        known |= values
        answer = _acknowledge(values, effort)
        messages.append(user(content))
        if not facts and source.chance(0.25):
            return Branch("memory", tuple(messages), answer)
        messages.append(assistant(answer.text))
        for _ in range(source.choice((0, 0, 0, 1, 1, 2))):
            messages += _other_turn(source, known)
    asked = source.choice(list(known))
    messages.append(user(phrase(source, asked.asked, ask=False)))
    return Branch("memory", tuple(messages), _recall(asked, known[asked], effort))


def _draw_facts(source: Source) -> list[Fact]:
    n_facts = source.choice((1, 1, 2, 2, 3, 4, 5))
    facts = list(dict.fromkeys(source.some(OTHERS, n_facts, n_facts)))
    if source.chance(0.5):
        facts[source.rng.randrange(len(facts))] = NAME
    if source.chance(0.25):
        facts.insert(source.rng.randint(1, len(facts)), facts[0])
    return facts


def _tell(source: Source, fact: Fact, value: str, known: dict[Fact, str]) -> str:
    bank = fact.corrected if fact in known else fact.told
    # Without its period, a sentence that ends in the value gets no "thanks" behind the value.
    told = phrase(source, [text.removesuffix(".") for text in bank], ask=False, v=value)
    return f"{told}." if told.endswith(value) and source.chance(0.6) else told


def _join(sentences: list[str]) -> str:
    *firsts, last = sentences
    return "".join(f"{text} " if text[-1] in ".!)?" else f"{text}. " for text in firsts) + last


def _acknowledge(values: dict[Fact, str], effort: Effort) -> Answer:
    if NAME in values:
        name = values[NAME]
        analysis = thought(effort, BANK.THOUGHTS["acknowledge_2"], name=name)
        return Answer(f"Nice to meet you, {name}!", analysis)
    analysis = thought(effort, BANK.THOUGHTS["acknowledge"])
    return Answer("Ok, I will remember that.", analysis)


def _recall(fact: Fact, value: str, effort: Effort) -> Answer:
    analysis = thought(effort, BANK.THOUGHTS["recall"], value=value)
    return Answer(fact.answer.format(v=value), analysis)


def _other_turn(source: Source, known: dict[Fact, str]) -> tuple[Message, Message]:
    if source.chance(0.2):
        fact = source.choice(list(known))
        asked, answer = source.choice(fact.asked), fact.answer.format(v=known[fact])
    elif source.chance(0.3):
        answer = source.line()
        asked = f"Repeat this: {answer}"
    else:
        asked, answer = source.choice(BANK.SMALL_TALK)
    return user(asked), assistant(answer)


_SENTENCE_TOKENS = 13
_BLOCK = 40  # sentences
_WORDS = ("passcode", "passcode", "password", "secret code", "access key", "PIN", "code")


@dataclass(frozen=True, slots=True)
class _Code:
    """A code in a text; without a name it is the only one."""

    word: str
    name: str
    code: str

    def state(self, source: Source) -> str:
        marks = [mark for mark in ("", "", "", "`", '"', "**") if not mark or mark not in self.code]
        mark = source.choice(marks)
        shown = mark + self.code + mark
        bank = BANK.STATED if self.name else BANK.STATED_ALONE
        stated = source.choice(bank).format(word=self.word, name=self.name, code=shown)
        return stated[0].upper() + stated[1:] if source.chance(0.7) else stated

    def ask(self, source: Source) -> str:
        bank = BANK.ASKED if self.name else BANK.ASKED_ALONE
        return phrase(source, bank, ask=False, word=self.word, name=self.name)

    def answer(self, effort: Effort) -> Answer:
        of = f" of {self.name}" if self.name else ""
        analysis = thought(effort, BANK.THOUGHTS["answer"], word=self.word, of=of, code=self.code)
        return Answer(f"The passcode is {self.code}.", analysis)


def _draw_codes(source: Source) -> list[_Code]:
    word = source.choice(_WORDS)
    if source.chance(0.2):
        return [_Code(word, "", _draw_code(source))]
    codes: list[_Code] = []
    for _ in range(source.rng.randint(1, 8)):
        name = _draw_name(source)
        if not any(name in other.name or other.name in name for other in codes):
            codes.append(_Code(word, name, _draw_code(source)))
    return codes


def _draw_name(source: Source) -> str:
    kind = source.rng.randrange(8)
    if kind <= 1:
        return source.person()
    if kind <= 3:
        return f"the {source.choice(WORDS.ADJECTIVES)} {source.noun()}"
    if kind == 4:
        return f"the {source.noun()}"
    if kind == 5:
        return f"room {source.rng.randrange(1, 1000)}"
    return f"project {source.invented().capitalize()}" if kind == 6 else source.identifier()


def _draw_code(source: Source) -> str:
    if source.chance(0.65):
        return source.secret()

    def draw() -> str:
        return source.tokens(source.rng.randint(1, 5)).replace(" ", "").strip(".,:;!?`*\"'|-")

    return source.fresh(lambda: draw() or source.secret())


def _filler(source: Source, n_tokens: int) -> list[str]:
    """Write paragraphs about nothing, of about so many tokens in all.

    The sentences of long texts come back now and then, which saves most of the work.
    """
    stock = [source.sentence() for _ in range(min(n_tokens // _SENTENCE_TOKENS + 1, 3 * _BLOCK))]
    paragraphs: list[str] = []
    missing = n_tokens
    while missing > 0:
        n = min(source.rng.randint(1, _BLOCK), missing // _SENTENCE_TOKENS + 1)
        kind = source.rng.random()
        if kind < 0.7:
            paragraphs.append(" ".join(source.rng.choices(stock, k=n)))
        elif kind < 0.8:
            paragraphs.append("\n".join(f"- {line}" for line in source.rng.choices(stock, k=n)))
        elif kind < 0.9:
            paragraphs.append(source.tokens(n * _SENTENCE_TOKENS // 2))
        else:
            paragraphs.append(source.code(min(n, 12)))
        missing -= n * _SENTENCE_TOKENS
    return paragraphs


def _hide(source: Source, codes: Sequence[_Code], n_tokens: int) -> str:
    paragraphs = _filler(source, n_tokens)
    if source.chance(0.15):  # all in one place, as a list
        at = source.rng.randint(0, len(paragraphs))
        return "\n\n".join(
            [*paragraphs[:at], "\n".join(c.state(source) for c in codes), *paragraphs[at:]]
        )
    for code in codes:
        stated = code.state(source)
        at = source.choice((0, len(paragraphs), *range(len(paragraphs))))
        ends_openly = stated[-1] not in '.`"*'  # then the end of the line ends the code
        if at == len(paragraphs) or ends_openly or source.chance(0.4):
            paragraphs.insert(at, stated)
        else:
            paragraphs[at] = _insert(source, paragraphs[at], stated)
    return "\n\n".join(paragraphs)


def _insert(source: Source, paragraph: str, stated: str) -> str:
    joint = "\n" if "\n" in paragraph else " "
    sentences = paragraph.split("\n" if joint == "\n" else ". ")
    at = source.rng.randint(0, len(sentences))
    if joint == "\n":
        return "\n".join([*sentences[:at], stated, *sentences[at:]])
    before, after = ". ".join(sentences[:at]), ". ".join(sentences[at:])
    before = f"{before}. " if before and after else before + " " * bool(before)
    return before + stated + (f" {after}" if after else "")


def _needle(source: Source, effort: Effort) -> Document:
    n_tokens = round(math.exp(source.rng.uniform(math.log(200), math.log(16_000))))
    codes = _draw_codes(source)
    text = _hide(source, codes, n_tokens)
    place = source.rng.random()
    if place < 0.2:
        code = source.choice(codes)
        content = source.choice(BANK.IN_ONE).format(text=text, ask=code.ask(source))
        return Document(effort, (_needle_branch(content, code.answer(effort)),))
    branches = tuple(_needle_branch(code.ask(source), code.answer(effort)) for code in codes)
    if place < 0.4:
        instructions = source.choice(BANK.AS_INSTRUCTIONS).format(text=text)
        return Document(effort, branches, instructions=instructions)
    shown = source.choice(BANK.INTRODUCED).format(text=text)
    read = assistant(source.choice(BANK.READ))
    return Document(effort, branches, context=(user(shown), read))


def _needle_branch(content: str, answer: Answer) -> Branch:
    return Branch("needle", (user(content),), answer)


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"memory": tell_and_ask}
DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = {"needle": _needle}
