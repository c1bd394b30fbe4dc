"""What decides whether a rewritten file is right weighs more than what is copied."""

import numpy as np

from gptoss_local.chat.message import Message
from tests.nano.data.document import Answer, Branch, Document, encode_document, load_vocabulary
from tests.nano.train.rows import Row
from tests.nano.train.turns import TURN_WEIGHT, followers, turns, weights

PROMPT = [1, 2, 3, 1, 2, 4, 5, 6]


def test_a_turn_is_where_nothing_that_was_read_goes_on_so() -> None:
    read = [followers(PROMPT[:4]), followers(PROMPT[2:])]
    assert turns((1, 2), [3], read).tolist() == [False]
    assert turns((1, 2), [4], read).tolist() == [False]  # as in the other part
    assert turns((1, 2), [5], read).tolist() == [True]
    assert turns((9, 2), [3, 1], read).tolist() == [False, False]  # the pair is new, 2 is not
    assert turns((9, 2), [6], read).tolist() == [True]
    assert turns((8, 9), [3], read).tolist() == [False]  # nothing to copy from


def test_weights_are_one_on_the_average() -> None:
    found = weights((1, 2), [3, 1, 2, 6], [followers(PROMPT)])
    assert found.mean() == 1
    assert found[3] / found[0] == TURN_WEIGHT


def test_a_rename_turns_where_the_name_stands() -> None:
    lines = "\n".join(f"{name} = 1\nprint({name})" for name in ("apple", "pear", "plum"))
    ask = Message(role="user", content=f"Rename pear to cherry.\n```\n{lines}\n```")
    answer = Answer(f"```\n{lines.replace('pear', 'cherry')}\n```")
    document = Document("low", (Branch("rename", (ask,), answer),))
    context, encoded = encode_document(document)
    row = Row.empty(1023)
    ((start, end),) = row.add(context, encoded)
    weight, token = row.arrays["weight"], row.arrays["token"]
    assert np.all(weight[:start] == 0)
    assert abs(weight[start:end].astype(float).mean() - 1) < 0.01  # a short answer
    decode = load_vocabulary().encoding.decode
    text = [decode([int(token[i])]) for i in range(start, end)]
    heavy = [word for word, w in zip(text, weight[start:end], strict=True) if w > 1]
    assert heavy.count("cherry") + heavy.count("ch") == 2, heavy
    assert not any(name in word for word in heavy for name in ("apple", "plum"))
