"""Which messages go when a conversation does not fit."""

import pytest

from gptoss_local.harmony import ChatRequest, Message, ToolRequest, Vocabulary
from gptoss_local.harmony.render import render_chat
from gptoss_local.harmony.truncation import shorten

pytestmark = pytest.mark.quick


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


def test_hopeless_conversations_stay_whole(vocabulary: Vocabulary) -> None:
    """So that the refusal tells its real length."""
    long = Message(role="user", content="word " * 1000)
    for messages in ((long,), (*turn(1), long), (SYSTEM,), (LATE, Message(role="assistant"))):
        request = ChatRequest(messages=messages)
        assert shorten(request, vocabulary, 60) == (request, 0)


def test_fitting_conversations_stay_whole(vocabulary: Vocabulary) -> None:
    request = ChatRequest(messages=(*turn(1), LAST))
    n_tokens = len(render_chat(request, vocabulary))
    assert shorten(request, vocabulary, n_tokens + 1) == (request, 0)
