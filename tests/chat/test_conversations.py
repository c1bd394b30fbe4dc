"""Conversations keep their date, lose whole turns to fit, and have one vocabulary."""

import datetime
from pathlib import Path

import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.gguf_file import read_array
from gptoss_local.base.formats.o200k import FIRST_SPECIAL, TYPES_KEY, VOCAB_SIZE
from gptoss_local.harmony import ChatRequest, Message, Tool, ToolRequest, Vocabulary
from gptoss_local.harmony.conversation import StartDates, lineage, shorten
from gptoss_local.harmony.render import render_chat, render_history
from gptoss_local.models.store import read_tokens

pytestmark = pytest.mark.quick

DAY, NEXT_DAY = datetime.date(2026, 12, 31), datetime.date(2027, 1, 1)


class Clock:
    date = DAY

    def __call__(self) -> datetime.date:
        return self.date


def user(content: str) -> Message:
    return Message(role="user", content=content)


def reply(content: str) -> Message:
    return Message(role="assistant", content=content, reasoning="Let me think.")


FIRST = ChatRequest(messages=(Message(role="system", content="Be kind."), user("hi")))
SECOND = ChatRequest(messages=(*FIRST.messages, reply("hello"), user("and now?")))


def test_conversation_keeps_its_date_after_midnight(vocabulary: Vocabulary) -> None:
    clock = Clock()
    dates = StartDates(clock)
    first = render_chat(FIRST, vocabulary, dates.date_of(FIRST))
    clock.date = NEXT_DAY
    assert dates.date_of(SECOND) == DAY
    second = render_chat(SECOND, vocabulary, dates.date_of(SECOND))
    assert second[: len(first)] == first
    assert dates.date_of(ChatRequest(messages=(user("other"), reply("x"), user("y")))) == NEXT_DAY


def test_dates_are_forgotten_in_the_end() -> None:
    clock = Clock()
    dates = StartDates(clock)
    dates.date_of(FIRST)
    for i in range(1000):
        dates.date_of(ChatRequest(messages=(user(str(i)),)))
    clock.date = NEXT_DAY
    assert dates.date_of(SECOND) == NEXT_DAY


def test_the_first_question_decides_the_lineage() -> None:
    assert lineage(FIRST) == lineage(SECOND)
    others = [
        ChatRequest(messages=(user("hi"),)),
        ChatRequest(messages=(FIRST.messages[0], user("ho"))),
        ChatRequest(messages=FIRST.messages, tools=(Tool("f"),)),
        ChatRequest(messages=FIRST.messages, owner="another"),  # with dates that tell no one else
    ]
    assert len({lineage(request) for request in (FIRST, *others)}) == 5


@pytest.mark.parametrize("reasoning", [True, False])
def test_the_next_prompt_begins_with_the_history(vocabulary: Vocabulary, reasoning: bool) -> None:
    messages = (user("hi"), reply("hello"), user("What is 3 plus 4?"))
    request = ChatRequest(messages=messages, reasoning=reasoning)
    history = render_history(request, "It is 7.", vocabulary, DAY)
    following = (*messages, reply("It is 7."), user("Thanks."))
    prompt = render_chat(ChatRequest(messages=following, reasoning=reasoning), vocabulary, DAY)
    assert prompt[: len(history)] == history
    rest = vocabulary.encoding.decode(prompt[len(history) :])
    assert rest.startswith("<|start|>user<|message|>Thanks.<|end|><|start|>assistant")


def turn(number: int, *, words: int = 40) -> tuple[Message, ...]:
    """A question, a call, its result, and the answer."""
    call = ToolRequest("f", {"n": number}, f"call_{number}")
    return (
        Message(role="user", content=f"Question {number}. " + "word " * words),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=f"Result {number}.", tool_call_id=call.id),
        Message(role="assistant", content=f"Answer {number}."),
    )


SYSTEM = Message(role="system", content="Be brief.")
LATE = Message(role="system", content="Now in French.")
LAST = Message(role="user", content="And now?")


@pytest.mark.parametrize("n_ctx", range(200, 1400, 150))
def test_whole_turns_go_and_no_more_than_needed(vocabulary: Vocabulary, n_ctx: int) -> None:
    turns = [turn(number) for number in range(10)]
    messages = (SYSTEM, *sum(turns[:2], ()), LATE, *sum(turns[2:], ()), LAST)
    request = ChatRequest(messages=messages)
    shorter, n_left_out = shorten(request, vocabulary, n_ctx)
    n_tokens, n_less = len(render_chat(shorter, vocabulary)), n_left_out // 4
    gone = sum(turns[:n_less], ())
    assert shorter.messages == tuple(m for m in messages if m not in gone)
    assert len(gone) == n_left_out
    if not n_less:
        assert n_tokens < n_ctx
        return
    assert n_tokens < n_ctx - n_ctx // 4
    gone = sum(turns[: n_less - 1], ())
    longer = ChatRequest(messages=tuple(m for m in messages if m not in gone))
    assert len(render_chat(longer, vocabulary)) >= n_ctx - n_ctx // 4


def test_fitting_and_hopeless_conversations_stay_whole(vocabulary: Vocabulary) -> None:
    """A refusal tells the real length."""
    long = Message(role="user", content="word " * 1000)
    for messages in ((long,), (*turn(1), long), (SYSTEM,), (LATE, Message(role="assistant"))):
        request = ChatRequest(messages=messages)
        assert shorten(request, vocabulary, 60) == (request, 0)
    fitting = ChatRequest(messages=(*turn(1), LAST))
    n_tokens = len(render_chat(fitting, vocabulary))
    assert shorten(fitting, vocabulary, n_tokens + 1) == (fitting, 0)


def test_a_model_has_it(nano_gguf: Path, vocabulary: Vocabulary) -> None:
    types = read_array(nano_gguf, TYPES_KEY)
    assert Vocabulary.from_model(read_tokens(nano_gguf), types) is vocabulary


def test_token_bytes_agree_with_the_encoding(vocabulary: Vocabulary) -> None:
    text = "Zażółć 漢字 🙂 def f(x):\n\treturn x"
    tokens = vocabulary.encode(text)
    assert b"".join(vocabulary.token_bytes[t] for t in tokens).decode() == text
    assert b"".join(map(vocabulary.bytes_of, tokens)).decode() == text
    special = range(FIRST_SPECIAL, VOCAB_SIZE)
    assert [vocabulary.bytes_of(t).decode() for t in special] == [
        vocabulary.encoding.decode([t]) for t in special
    ]


def test_another_tokenizer_is_refused(nano_gguf: Path) -> None:
    right, types = read_tokens(nano_gguf), read_array(nano_gguf, TYPES_KEY)
    wrong = {name: right.copy() for name in ("exchanged", "moved", "lacking")}
    wrong["exchanged"][5000:5002] = right[5001], right[5000]
    wrong["moved"][200012:200014] = right[200013], right[200012]
    wrong["lacking"][200005] = "<|my_tag|>"
    others = (["▁the", "▁a"], [*right[:100], "\ud800"], [], right[:200_000])
    for tokens in (*wrong.values(), *others):
        with pytest.raises(ModelLoadError, match="tokenizer is not o200k_harmony") as caught:
            Vocabulary.from_model(tokens, types[: len(tokens)])
        named = {"moved": "not <|call|>", "lacking": "not <|channel|>"}
        assert all(text in caught.value.message for n, text in named.items() if tokens is wrong[n])
