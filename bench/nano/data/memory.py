"""Branches in which the user tells facts over several turns and asks for one of them later."""

from bench.nano.data.document import Answer, Branch
from bench.nano.data.memory_facts import NAME, OTHERS, Fact
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("memory")


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
        messages.append(Message(role="user", content=content))
        if not facts and source.chance(0.25):
            return Branch("memory", tuple(messages), answer)
        messages.append(Message(role="assistant", content=answer.text))
        for _ in range(source.choice((0, 0, 0, 1, 1, 2))):
            messages += _other_turn(source, known)
    asked = source.choice(list(known))
    messages.append(Message(role="user", content=phrase(source, asked.asked, ask=False)))
    return Branch("memory", tuple(messages), _recall(asked, known[asked], effort))


def _draw_facts(source: Source) -> list[Fact]:
    """Draw what is told, in order; a fact that comes again is a correction."""
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
        analysis: dict[Effort, str] = {
            "low": "",
            "medium": f"The user's name is {name}.",
            "high": f"The user tells me a name. The name is {name}. I greet the user by name.",
        }
        return Answer(f"Nice to meet you, {name}!", analysis[effort])
    analysis = {
        "low": "",
        "medium": "The user tells me a fact.",
        "high": "The user tells me a fact and asks nothing. I may need it later. I say that I "
        "will remember it.",
    }
    return Answer("Ok, I will remember that.", analysis[effort])


def _recall(fact: Fact, value: str, effort: Effort) -> Answer:
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": f"The user told me: {value}.",
        "high": "The user asks for something that was told before. I look for it in our "
        f"conversation; what was said last counts. It is {value}.",
    }
    return Answer(fact.answer.format(v=value), analysis[effort])


def _other_turn(source: Source, known: dict[Fact, str]) -> tuple[Message, Message]:
    """Draw a finished turn that changes nothing."""
    if source.chance(0.2):
        fact = source.choice(list(known))
        asked, answer = source.choice(fact.asked), fact.answer.format(v=known[fact])
    elif source.chance(0.3):
        answer = source.line()
        asked = f"Repeat this: {answer}"
    else:
        asked, answer = source.choice(BANK.SMALL_TALK)
    return Message(role="user", content=asked), Message(role="assistant", content=answer)
