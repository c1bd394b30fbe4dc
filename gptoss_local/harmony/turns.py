"""Orders an assistant's steps in a turn, and finds the words among them that are the answer.

Dialects do not mark the final message; it follows from the next one: a call or a result of one
means that the turn continued.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gptoss_local.harmony.message import Message


def arrange(messages: Iterable[Message]) -> list[Message]:
    """Split the assistant's messages into single steps, in the order that harmony has them.

    A step has reasoning, content or calls alone, or the model's own tokens of them all. Content
    before a call or a result is a preamble. Messages between a call and its result go before the
    call.
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
