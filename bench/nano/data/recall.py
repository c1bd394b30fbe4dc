"""Documents that ask for one fact in a long text; `memory` has facts that the user tells."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.nano.data import words
from bench.nano.data.document import Answer, Branch, Document
from bench.nano.data.memory import tell_and_ask
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

_SENTENCE_TOKENS = 13
_BLOCK = 40  # sentences
_WORDS = ("passcode", "passcode", "password", "secret code", "access key", "PIN", "code")
_STATED = (
    "The {word} for {name} is {code}.", "Remember: the {word} of {name} is {code}.",
    "The {word} of {name} is {code}.", "Important: {word} for {name}: {code}", "{name}: {code}",
    "{word} for {name} = {code}", "Note that the {word} for {name} is {code}.",
    "For {name} the {word} is {code}.", "We set the {word} for {name} to {code}.",
    "As {word} for {name} we use {code}.", "Whoever needs the {word} for {name}: it is {code}.",
    "- {word} for {name}: {code}", "To open {name}, use the {word} {code}.",
    "{name} has the {word} {code}.", "Do not forget that the {word} of {name} is {code}.",
)  # fmt: skip
_STATED_ALONE = (
    "The {word} is {code}.", "Remember: the {word} is {code}.", "{word}: {code}", "{word} = {code}",
    "Important: the {word} is {code}.", "Note that the {word} is {code}.",
    "We set the {word} to {code}.", "As {word} we use {code}.", "Do not forget the {word}: {code}",
    "The {word} that you need is {code}.", "The secret {word} is {code}.",
)  # fmt: skip
_ASKED = tuple(
    pattern.replace("WORD_OF", f"{{word}} {of} {{name}}")
    for of in ("for", "of")
    for pattern in (
        "What is the WORD_OF?",
        "Tell me the WORD_OF.",
        "what's the WORD_OF",
        "Give me the WORD_OF.",
        "Which one is the WORD_OF?",
        "I need the WORD_OF.",
        "Find the WORD_OF.",
        "the WORD_OF?",
        "Can you tell me the WORD_OF?",
        "Do you know the WORD_OF?",
        "Look up the WORD_OF.",
        "What does the text say is the WORD_OF?",
        "I forgot the WORD_OF. What was it?",
        "Somewhere it gives the WORD_OF. What is it?",
        "What was the WORD_OF again?",
        "Remind me of the WORD_OF.",
        "Read the text and tell me the WORD_OF.",
        "WORD_OF?",
        "Which code is the WORD_OF?",
        "I am looking for the WORD_OF.",
    )
)
_ASKED_ALONE = (
    "What is the {word}?", "Tell me the {word}.", "what's the {word}", "Give me the {word}.",
    "What {word} does the text mention?", "I need the {word}.", "Find the {word} in the text.",
    "Can you tell me the {word}?", "Do you know the {word}?", "Look up the {word}.", "{word}?",
    "What does the text say is the {word}?", "I forgot the {word}. What was it?",
    "Somewhere the text has a {word}. What is it?", "What was the {word} again?",
    "Remind me of the {word}.", "Read the text and tell me the {word}.", "the {word} please",
    "There is a {word} hidden in the text. Which one?", "I am looking for the {word}.",
)  # fmt: skip
_INTRODUCED = (
    "{text}", "Read this text:\n\n{text}", "Here is a long text.\n\n{text}", "Notes:\n\n{text}",
    "Remember what this says.\n\n{text}", "I will ask you about this text:\n\n{text}",
    "<document>\n{text}\n</document>", "Please read carefully.\n\n{text}", "My diary:\n{text}",
    "Text:\n{text}", "These are my files.\n\n{text}", "---\n{text}\n---", "# Report\n\n{text}",
)  # fmt: skip
_READ = (
    "Ok.", "Ok, I have read the text.", "I have read it. What do you want to know?", "Done.",
    "I have read everything.", "Understood.", "Ok, ask me.",
)  # fmt: skip
_AS_INSTRUCTIONS = (
    "{text}", "You are a helpful assistant.\n\n{text}", "Use these notes to answer.\n\n{text}",
    "# Knowledge\n\n{text}", "You answer questions about this text.\n\n{text}",
)  # fmt: skip
_IN_ONE = (
    "{text}\n\n{ask}", "{ask}\n\n{text}", "Text:\n{text}\n\nQuestion: {ask}", "{text}\n---\n{ask}",
    "{ask}\n\n<text>\n{text}\n</text>", "<document>\n{text}\n</document>\n\n{ask}",
    "Read this.\n\n{text}\n\n{ask}", "Question: {ask}\n\nText: {text}",
)  # fmt: skip


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
        bank = _STATED if self.name else _STATED_ALONE
        stated = source.choice(bank).format(word=self.word, name=self.name, code=shown)
        return stated[0].upper() + stated[1:] if source.chance(0.7) else stated

    def ask(self, source: Source) -> str:
        bank = _ASKED if self.name else _ASKED_ALONE
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
        return f"the {source.choice(words.ADJECTIVES)} {source.noun()}"
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
        content = source.choice(_IN_ONE).format(text=text, ask=code.ask(source))
        return Document(effort, (_needle_branch(content, code.answer(effort)),))
    branches = tuple(_needle_branch(code.ask(source), code.answer(effort)) for code in codes)
    if place < 0.4:
        instructions = source.choice(_AS_INSTRUCTIONS).format(text=text)
        return Document(effort, branches, instructions=instructions)
    shown = source.choice(_INTRODUCED).format(text=text)
    read = Message(role="assistant", content=source.choice(_READ))
    return Document(effort, branches, context=(Message(role="user", content=shown), read))


def _needle_branch(content: str, answer: Answer) -> Branch:
    return Branch("needle", (Message(role="user", content=content),), answer)


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"memory": tell_and_ask}
DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = {"needle": _needle}
