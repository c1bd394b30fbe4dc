"""What decides whether a rewritten file is right weighs more than what is copied."""

import numpy as np
import pytest

from bench.nano.data.document import (
    Answer,
    Branch,
    Document,
    encode_document,
)
from bench.nano.train.rows import Row
from bench.nano.train.turns import (
    FOCUS_END,
    FOCUS_UNTIL,
    MAX_TURN_WEIGHT,
    TURN_SHARE,
    followers,
    turn_focus,
    turn_weights,
    turns,
)
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.message import Message

PROMPT = [1, 2, 3, 4, 1, 2, 5, 6, 9, 9, 3, 4, 7]


def test_a_turn_is_where_nothing_that_was_read_goes_on_so() -> None:
    read = [followers(PROMPT[:6]), followers(PROMPT[4:])]
    assert turns((1, 2), [3], read).tolist() == [False]
    assert turns((1, 2), [5], read).tolist() == [False]  # as in the other part
    assert turns((1, 2), [6], read).tolist() == [True]
    assert turns((1, 2, 3, 4), [7], read).tolist() == [True]  # so after two, not after these four
    assert turns((8, 8, 3, 4), [7], read).tolist() == [False]  # the four are new
    assert turns((8, 2), [3], read).tolist() == [False]  # nothing to copy from


def test_turns_weigh_a_share_of_the_answer_and_a_few_times_the_others_at_most() -> None:
    found = turn_weights(np.arange(40) == 9)
    assert found[9] == MAX_TURN_WEIGHT
    assert np.all(found[10:] == 1)
    found = turn_weights(np.arange(40) % 20 == 9)
    assert found[[9, 29]].sum() / found.sum() == pytest.approx(TURN_SHARE)
    assert np.all(turn_weights(np.arange(40) % 3 == 0) == 1)  # a third of it as it is
    assert np.all(turn_weights(np.zeros(4, np.bool_)) == 1)


def test_turns_count_less_and_less() -> None:
    focus = [turn_focus(progress) for progress in (0.0, FOCUS_UNTIL, 0.6, FOCUS_END, 1.0)]
    assert focus == pytest.approx([1, 1, 0.5, 0, 0])


def test_a_rename_turns_where_the_name_stands() -> None:
    lines = "\n".join(f"{name} = 1\nprint({name})" for name in ("apple", "pear", "plum"))
    ask = Message(role="user", content=f"Rename pear to cherry.\n```\n{lines}\n```")
    answer = Answer(f"```\n{lines.replace('pear', 'cherry')}\n```")
    document = Document("low", (Branch("rename", (ask,), answer),))
    context, encoded = encode_document(document)
    row = Row.empty(1023)
    ((start, end),) = row.add(context, encoded)
    weight, token = row.arrays["turn"], row.arrays["token"]
    assert np.all(weight[:start] == 0)
    assert np.all(row.arrays["weight"][start:end] == 1)  # a short answer
    decode = load_vocabulary().encoding.decode
    text = [decode([int(token[i])]) for i in range(start, end)]
    heavy = [word for word, w in zip(text, weight[start:end], strict=True) if w > 1]
    assert heavy.count("cherry") + heavy.count("ch") == 2, heavy
    assert not any(name in word for word in heavy for name in ("apple", "plum"))


def test_a_change_turns_where_a_line_is_left_out() -> None:
    lines = [f"    if level == {n}:\n        return {n}" for n in (3, 5, 7)]
    ask = Message(role="user", content="Leave out `if level == 5:`\n" + "\n".join(lines))
    left = "\n".join(lines).replace("    if level == 5:\n", "")
    document = Document("low", (Branch("change", (ask,), Answer(left)),))
    context, (encoded,) = encode_document(document)
    prompt = [*context, *encoded.prompt]
    turned = np.flatnonzero(turns(prompt[-8:], encoded.target, [followers(prompt)]))
    decode = load_vocabulary().encoding.decode
    behind = [decode(encoded.target[: i + 1]) for i in turned]
    assert any(text.endswith("return 3\n       ") for text in behind), behind
