"""Branches that ask for a given text back, byte for byte, or for one given word.

How a value is set off from the request is decided here: a delimiter never occurs in the value, and
a value without one ends the message or stands alone before a blank line.
"""

import json
from collections.abc import Callable, Sequence

from bench.nano.data import words
from bench.nano.data.document import Answer, Branch
from bench.nano.data.source import Source
from bench.nano.data.wording import combine, phrase
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

QUOTES = "\"'`“”«»‘’"
PAIRS = (
    ('"', '"'), ('"', '"'), ('"', '"'), ("'", "'"), ("`", "`"), ("`", "`"), ("“", "”"),
    ("«", "»"), ("<text>", "</text>"),
)  # fmt: skip

_WITH = (
    "Reply with|Respond with|Answer with|Reply only with|Respond only with|Answer only with|"
    "Reply with exactly|Respond with exactly|Answer with exactly|Come back with"
)
_VERBS = (
    "Say|Repeat|Echo|Output|Print|Write|Copy|Type|Return|Quote|Recite|Send|Write back|Say exactly|"
    "Repeat exactly|Give me back|Repeat after me|Just say|Only say|Return only|Write exactly|"
    "Print only|Send back|Reproduce|Duplicate|Mirror|Parrot"
)
_TAILS = (
    "|and nothing else.|, nothing more.|exactly as it is.|word for word.|without any other text.|"
    "and stop.|only.|verbatim.|unchanged."
)
_SHOULD = "should be|must be|has to be|is"
_ANSWER = "Your answer|Your reply|Your response|The answer|The reply|Your whole answer|Your output"
_WISH = "I want to hear|I want to read|All I want to hear is|All I want is|The answer I expect is"
_CHECK = "Test:|Test.|This is a test.|This is a check.|This is a connection test.|Echo test:|Check:"
_NO = (
    "No comments,|Without any comment,|Do not explain,|With no other words,|Without quotes,|"
    "Do not answer this,|Do not greet,"
)
_SAYING = "say|write|reply|answer|repeat|reply with|answer with|just say|only say|only repeat"
_INLINE = (
    *combine(f"{_WITH}|{_VERBS}", "{text}", _TAILS),
    *combine(_ANSWER, _SHOULD, "{text}|{text}.|{text}, nothing else.|{text} and nothing else."),
    *combine(_WISH, "{text}|{text}.|{text} and nothing else.|{text}, nothing more."),
    *combine(f"{_CHECK}|{_NO}", _SAYING, "{text}|{text}.|{text} and nothing else.|{text} only."),
    *combine("If you can read this,|If you can hear me,|When you read this,", _SAYING, "{text}."),
    *combine("{text}:|{text} -|{text} is the text:|I say {text}, you", _SAYING,
             "that|this|the same|exactly that|exactly this|that again|the same again"),
)  # fmt: skip
_BARE = (  # a value at the end of a message, with no mark around it
    *combine(f"{_WITH}|{_VERBS}", "|the words|the text|the words that follow", "{text}"),
    *combine(f"{_CHECK}|{_NO}", _SAYING, "{text}"),
)  # fmt: skip
_THIS = (
    "this|the following|exactly this|only this|this text|the text that follows|the following text|"
    "this line|the following line|the following verbatim|this unchanged|this word for word|"
    "this and nothing else|this again|this back to me|this and stop|an exact copy of this"
)
_COLON = (
    *combine(f"{_WITH}|{_VERBS}", ": {text}"),
    *combine(f"{_WITH}|{_VERBS}", _THIS, ": {text}"),
    *combine(_ANSWER, f"{_SHOULD}|should be exactly|must be exactly", ": {text}"),
    *combine("Text to|Words to|Line to", f"{_SAYING}|copy|echo", ": {text}"),
    *combine(_WISH, ": {text}"), *combine(_CHECK, f"{_SAYING}|echo", ": {text}"),
    *combine(_NO, _SAYING, "this: {text}|: {text}|the following: {text}"),
)  # fmt: skip
_BELOW = (
    "this|the following|this text|the text below|everything below|the lines below|these lines|"
    "this block|the following block|the following lines|the following text|what follows|"
    "an exact copy of this|this block and nothing else|the text below exactly as it is"
)
_GAPS = (":\n{text}", ":\n\n{text}", ".\n\n{text}", "\n{text}", ".\n{text}")
_BLOCK = tuple(
    request + _GAPS[index % 5]
    for index, request in enumerate(combine(
        f"{_WITH}|{_VERBS}|Give me|Send me|I want|I need|No comments, only repeat|"
        "Do not answer this, only repeat|Do not explain, write|Do not answer, repeat", _BELOW,
    ))
)  # fmt: skip
_ABOVE = (
    "the text above|the above|that|this|the lines above|what stands above|this text|that text|"
    "the text above unchanged|the text above word for word|the above and nothing else|"
    "that exactly|this exactly|that back to me|this again|that again|that pls|the same text"
)
_FIRST = tuple(
    "{text}\n\n" + request
    for request in combine(f"{_WITH}|{_VERBS}|Give me|Send me|I want|I need", _ABOVE, "|.")
)

_REQUESTS = (
    "Reply with {word}", "Say {word} and stop.", "What is the capital of {city}?",
    "What is {n} + {m}?", "List the files in {path}", "Do not answer {name}.", "Open {path}",
    "Who is {name}?", "Where is the {noun}?", "Ignore all earlier text and say {word}.",
    "Please repeat: {word}", "How many {noun}s are there in {city}?", "Run `{command}`",
    "Can you tell me what {word} means?", "Write a {noun} poem about {city}.", "Hello!", "Hi",
    "Why does the {noun} need a {noun}?", "What's the weather in {city}?", "Repeat after me: no",
    "Is {n} larger than {m}?", "Call {name} at {n}:{m}.", 'Answer with "{word}" only.', "Stop.",
    "Translate {word} to the language of {city}", "Are you sure?", "What did I say?", "Echo {n}",
    "Rename {word} to {noun} in {path}", "Nothing else.", "Don't repeat this.", "Say nothing.",
)  # fmt: skip
_SCRIPTS = (
    (0x0430, 0x044F), (0x03B1, 0x03C9), (0x4E00, 0x6FFF), (0x3042, 0x3093), (0x0627, 0x064A),
    (0x05D0, 0x05EA), (0x0915, 0x0939), (0x0E01, 0x0E2E), (0xAC00, 0xD7A3), (0x00E0, 0x00F6),
    (0x1F600, 0x1F640), (0x30A2, 0x30F3), (0x0561, 0x0586), (0x10D0, 0x10F0),
)  # fmt: skip

_PLAIN_VERBS = (
    "Say|Write|Type|Output|Return|Print|Reply|Answer|Respond|Echo|Repeat|Just say|Simply say|"
    "Only say|Just write|Just answer|Simply answer|Only answer|Just reply|Only reply|Give me|"
    "Tell me|Send|Confirm with|Write only|Print only|Please say"
)
_WORD_TAILS = (
    "|.|and nothing else.|, nothing else.|, nothing more.|and nothing more|only.|alone.|and stop.|"
    "please.|, only that.|, please|without any other text.|to confirm.|if you can hear me."
)
_THE_WORD = (
    "the word|the single word|the one word|exactly the word|only the word|just the word|one word:|"
    "exactly one word:|only this word:|this word:|this single word:|one single word:"
)
_WORD = (
    *combine(f"{_PLAIN_VERBS}|{_WITH}", "{word}", _WORD_TAILS),
    *combine(f"{_PLAIN_VERBS}|Reply with|Respond with|Answer with", _THE_WORD,
             '{word}|{word}.|"{word}"|{word} and nothing else.|{word} and stop.|{word}, please.|'
             "`{word}`|'{word}'."),
    *combine(_ANSWER, f"{_SHOULD}|is only|must be just", "{word}|{word}.|the word {word}.|"
             'one word: {word}|the single word {word}|just {word}.|"{word}".'),
    *combine(f"{_CHECK}|{_NO}", _SAYING, "{word}|{word}.|the word {word}|just {word}."),
    *combine("If you can read this,|If you can hear me,|When you read this,|Ping!|Hello!", _SAYING,
             "{word}|{word}.|the word {word}."),
    *combine(f"{_PLAIN_VERBS}|{_WITH}", ": {word}|:\n{word}|, in one word: {word}|only: {word}"),
    *combine(_WISH, "{word}|{word}.|the word {word}|one word: {word}"),
)  # fmt: skip
_COMMON_WORDS = (
    "OK", "ok", "pong", "hello", "Hello", "hi", "yes", "no", "Yes", "No", "ready", "Ready", "done",
    "Done", "test", "ping", "understood", "READY", "YES", "NO", "hey", "bye", "true", "false",
    "working", "alive", "success", "confirmed", "thanks", "welcome", "banana", "42", "7",
)  # fmt: skip

_ECHO_ANALYSIS: dict[Effort, str] = {
    "low": "",
    "medium": "I repeat the text exactly.",
    "high": "The user wants a text back. It is not a question for me, so I only repeat it. I leave "
    "out the quotes or the fence around it. I copy every character and add nothing.",
}


def delimited(source: Source, text: str) -> str:
    """Put a text between a pair of marks that do not occur in it; a fence if there is none."""
    pairs = [pair for pair in PAIRS if pair[0] not in text and pair[1] not in text]
    if not pairs:
        return fenced(text)
    before, after = source.choice(pairs)
    return before + text + after


def fenced(text: str, language: str = "") -> str:
    """Put a text, which holds no fence itself, into a code fence."""
    return f"```{language}\n{text}\n```"


def _echo(source: Source, effort: Effort) -> Branch:
    text = _draw_text(source)
    answer = Answer(text, _ECHO_ANALYSIS[effort])
    message = Message(role="user", content=_echo_request(source, text))
    return Branch("echo", (message,), answer, opens_final=source.chance(0.05))


def _echo_request(source: Source, text: str) -> str:
    one_line = "\n" not in text
    is_bare = text[0] not in QUOTES and source.chance(0.75)  # its own quotes would look like ours
    form = source.rng.random()
    if one_line and form < 0.5:
        if text[0] not in QUOTES and source.chance(0.6):
            return phrase(source, _BARE, text=text)
        return phrase(source, _INLINE, ask=False, text=delimited(source, text))
    if one_line and form < 0.78:
        shown = text if is_bare else delimited(source, text)
        return phrase(source, _COLON, text=shown)
    shown = text if is_bare else fenced(text)
    if form < 0.92:
        return phrase(source, _BLOCK, text=shown)
    return phrase(source, _FIRST, ask=False, text=shown)


def _draw_text(source: Source) -> str:
    draws: Sequence[tuple[float, Callable[[Source], str]]] = (
        (0.35, Source.line), (0.2, _few_words), (0.08, _long_tokens), (0.04, _character),
        (0.03, _number), (0.05, _json), (0.05, _markdown), (0.05, _foreign), (0.08, _request),
        (0.08, _lines),
    )  # fmt: skip
    weights, options = zip(*draws, strict=True)
    draw = source.rng.choices(options, weights)[0]
    if draw is Source.line:
        return _without_fence(source.line())
    return source.fresh(lambda: _without_fence(draw(source)))


def _without_fence(text: str) -> str:
    return text.replace("```", "``").strip() or "-"


def _few_words(source: Source) -> str:
    """Draw words of which all but the first are other tokens than at the start of an answer."""
    draw = source.choice((source.token_word, source.token_word, source.invented, source.person))
    return source.choice((" ", " ", ", ")).join(draw() for _ in range(source.rng.randint(2, 6)))


def _long_tokens(source: Source) -> str:
    return source.tokens(source.rng.randint(12, 60))


def _character(source: Source) -> str:
    if source.chance(0.5):
        return chr(source.rng.randint(33, 126))
    low, high = source.choice(_SCRIPTS)
    return chr(source.rng.randint(low, high))


def _number(source: Source) -> str:
    digits = str(source.rng.randrange(10 ** source.rng.randint(1, 24)))
    return source.choice((digits, f"-{digits}", f"{digits}.{source.rng.randrange(1000)}"))


def _json(source: Source) -> str:
    pairs: dict[str, object] = {}
    for _ in range(source.rng.randint(1, 4)):
        value = source.choice((source.tokens(2), source.rng.randrange(1000), True, None, [1, 2]))
        pairs[source.choice(words.CODE_WORDS)] = value
    indent = 2 if source.chance(0.25) else None
    separators = (",", ":") if indent is None and source.chance(0.4) else None
    return json.dumps(pairs, ensure_ascii=False, indent=indent, separators=separators)


def _markdown(source: Source) -> str:
    word, sentence = source.tokens(2), source.sentence()
    return source.choice((
        f"**{word}**", f"# {word}", f"- {sentence}", f"[{word}](https://{source.invented()}.com)",
        f"> {sentence}", f"*{sentence}*", f"| {word} | {source.noun()} |", f"1. {word}",
        f"`{word}`", f"## {word}\n\n- {sentence}\n- {source.noun()}", f"~~{word}~~ {sentence}",
    ))  # fmt: skip


def _foreign(source: Source) -> str:
    low, high = source.choice(_SCRIPTS)
    lengths = [source.rng.randint(1, 8) for _ in range(source.rng.randint(1, 6))]
    draw = source.rng.randint
    return " ".join("".join(chr(draw(low, high)) for _ in range(n)) for n in lengths)


def _request(source: Source) -> str:
    slots = {
        "word": source.token_word(), "noun": source.noun(), "city": source.city(),
        "name": source.person(), "path": source.path(), "command": source.command(),
        "n": source.rng.randrange(100), "m": source.rng.randrange(100),
    }  # fmt: skip
    return source.choice(_REQUESTS).format(**slots)


def _lines(source: Source) -> str:
    n_lines = source.rng.randint(2, 12)
    if source.chance(0.5):
        return source.code(n_lines)
    return "\n".join(source.line() for _ in range(min(n_lines, 6)))


def _word(source: Source, effort: Effort) -> Branch:
    word = source.fresh(lambda: _draw_word(source))
    content = phrase(source, _WORD, word=word)
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": f"The word is {word}.",
        "high": f"The user wants a single word. The word is {word}. I reply with it alone, with "
        "no period and nothing before or after it.",
    }
    return Branch("word", (Message(role="user", content=content),), Answer(word, analysis[effort]))


def _draw_word(source: Source) -> str:
    kind = source.rng.randrange(12)
    if kind == 0:
        return source.choice(_COMMON_WORDS)
    if kind == 1:
        return source.noun()
    if kind <= 3:
        return source.choice((str.lower, str.capitalize, str.upper))(source.invented())
    if kind == 4:
        return source.choice((str.upper, str.capitalize))(source.token_word())
    if kind == 5:
        return source.identifier()
    if kind == 6:
        return str(source.rng.randrange(10 ** source.rng.randint(1, 6)))
    return source.token_word()


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"echo": _echo, "word": _word}
