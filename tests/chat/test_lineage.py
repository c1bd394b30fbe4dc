"""The date of a conversation, which must not change at midnight."""

import datetime

import pytest

from gptoss_local.harmony import ChatRequest, Message, Tool, Vocabulary
from gptoss_local.harmony.render import render_chat, render_history
from gptoss_local.harmony.session import StartDates, lineage

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
        ChatRequest(messages=FIRST.messages, owner="another"),  # whose dates tell nobody else
    ]
    assert len({lineage(request) for request in (FIRST, *others)}) == 5


@pytest.mark.parametrize("reasoning", [True, False])
def test_the_next_prompt_begins_with_the_history(vocabulary: Vocabulary, reasoning: bool) -> None:
    def ask(*messages: Message) -> ChatRequest:
        return ChatRequest(messages=messages, reasoning=reasoning)

    messages = (user("hi"), reply("hello"), user("What is 3 plus 4?"))
    history = render_history(ask(*messages), "It is 7.", vocabulary, DAY)
    following = ask(*messages, reply("It is 7."), user("Thanks."))
    prompt = render_chat(following, vocabulary, DAY)
    assert prompt[: len(history)] == history
    rest = vocabulary.encoding.decode(prompt[len(history) :])
    assert rest.startswith("<|start|>user<|message|>Thanks.<|end|><|start|>assistant")
