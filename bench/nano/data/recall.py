"""Documents that ask for one fact in a long text; `memory` has facts that the user tells."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.nano.data.document import Answer, Branch, Document
from bench.nano.data.memory import tell_and_ask
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("recall")
WORDS = banks("words")

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
        analysis: dict[Effort, str] = {
            "low": "",
            "medium": f"I look for the {self.word}{of} in the text.",
            "high": f"The user asks for the {self.word}{of}. I look for it in the text. The text "
            f"gives it as {self.code}. I copy it exactly.",
        }
        return Answer(f"The passcode is {self.code}.", analysis[effort])


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
    """Draw a secret; often one of any tokens, without spaces or marks at its ends."""
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
    """Write a long text with the codes anywhere in it."""
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
    """Put a sentence between two others."""
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
    read = Message(role="assistant", content=source.choice(BANK.READ))
    return Document(effort, branches, context=(Message(role="user", content=shown), read))


def _needle_branch(content: str, answer: Answer) -> Branch:
    return Branch("needle", (Message(role="user", content=content),), answer)


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"memory": tell_and_ask}
DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = {"needle": _needle}
