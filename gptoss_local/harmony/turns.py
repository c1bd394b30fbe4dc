"""The order of an assistant's steps in a turn, and the words among them that are the answer.

A turn is over with a message of the final channel. Dialects do not say which message that is, so it
follows from the next message: a call or the result of one means that the turn continued.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gptoss_local.harmony.message import Message


def arrange(messages: Iterable[Message]) -> list[Message]:
    """Split the assistant's messages into single steps, in the order that harmony has them.

    A step has reasoning, content or calls alone, or it is all that the model wrote of these.
    Content that comes before a call, or before a result, is a preamble. Messages between a call
    and its result go before the call.
    """
    arranged: list[Message] = []
    steps: list[Message] = []  # of the assistant, since the last message of another role
    for message in messages:
        if message.role == "assistant":
            steps += _steps(message)
        else:
            arranged += [*_in_order(steps, goes_on=message.role == "tool"), message]
            steps = []
    return [*arranged, *_in_order(steps, goes_on=False)]


def is_final(message: Message) -> bool:
    """Return whether an assistant's message ends its turn."""
    is_said = message.role == "assistant" and bool(message.content)
    return is_said and not message.tool_calls and not message.is_preamble


def _steps(message: Message) -> Iterator[Message]:
    if message.tokens:
        yield message
        return
    if message.reasoning:
        yield Message(role="assistant", reasoning=message.reasoning)
    if message.content:
        is_preamble = message.is_preamble
        yield Message(role="assistant", content=message.content, is_preamble=is_preamble)
    if message.tool_calls:
        yield Message(role="assistant", tool_calls=message.tool_calls)


def _in_order(steps: Sequence[Message], *, goes_on: bool) -> list[Message]:
    """Mark preambles; `goes_on` says that the result of a call follows."""
    n = next((i for i in range(len(steps), 0, -1) if steps[i - 1].tool_calls), 0)
    before, after = list(steps[:n]), list(steps[n:])
    if goes_on:
        calls: list[Message] = []
        while before and before[-1].tool_calls:
            calls.insert(0, before.pop())
        before, after = [*before, *after, *calls], []
    return [_as_preamble(step) if step.content else step for step in before] + after


def _as_preamble(step: Message) -> Message:
    return msgspec.structs.replace(step, is_preamble=True)
