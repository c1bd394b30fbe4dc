"""Log-probabilities go with the text of their tokens: split characters, stop strings, tags."""

import pytest

from gptoss_local.engine.protocol import Logprob
from gptoss_local.harmony import ContentDelta, TokenLogprob, Tool, Vocabulary
from gptoss_local.harmony.logprobs import ContentLogprobs
from gptoss_local.harmony.parser import HarmonyParser, RawParser
from gptoss_local.harmony.reader import Reader
from gptoss_local.harmony.vocabulary import RETURN

pytestmark = pytest.mark.quick

THOUGHT = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
TEXT = "東京 🙂 is 👋🏽 ça 𓀀!"


def read(
    vocabulary: Vocabulary, tagged: str, *stop: str, raw: bool = False
) -> tuple[list[ContentDelta], list[TokenLogprob]]:
    """Pieces of content, and the scored tokens of all of them; token i has -i / 1000."""
    parser = RawParser(vocabulary) if raw else HarmonyParser(vocabulary, (Tool("f"),))
    reader = Reader(parser, stop, ContentLogprobs(vocabulary))
    deltas = []
    for i, token in enumerate(vocabulary.encode_tagged(tagged)):
        deltas += reader.feed(token, Logprob(-i / 1000, [(token, -i / 1000), (RETURN, -9.0)]))
    deltas += reader.finish()
    pieces = [delta for delta in deltas if isinstance(delta, ContentDelta)]
    return pieces, [entry for piece in pieces for entry in piece.logprobs]


def test_bytes_are_the_content(vocabulary: Vocabulary) -> None:
    pieces, entries = read(vocabulary, f"{THOUGHT}{FINAL}{TEXT}<|return|>")
    assert "".join(piece.text for piece in pieces) == TEXT
    assert b"".join(entry.data for entry in entries).decode() == TEXT
    assert len(entries) > len(pieces) > 5  # characters of several tokens
    values = [entry.logprob for entry in entries]
    assert values == sorted(values, reverse=True)
    for entry in entries:
        assert entry.top == ((entry.data, entry.logprob), (b"<|return|>", -9.0))
        assert TEXT.encode().startswith(entry.data, len(TEXT[: entry.offset].encode())) or (
            entry.data.decode(errors="ignore") == ""
        )


@pytest.mark.parametrize(
    "stop", ["👋🏽", " is", "𓀀!", "京", "nowhere", "!", "京 🙂 i", "\U0001f3fd ça"]
)
def test_stop_string(vocabulary: Vocabulary, stop: str) -> None:
    """Shown text has all its tokens, and no token begins behind it."""
    shown = TEXT.partition(stop)[0]
    pieces, entries = read(vocabulary, f"{THOUGHT}{FINAL}{TEXT}<|return|>", stop)
    assert "".join(piece.text for piece in pieces) == shown
    assert b"".join(entry.data for entry in entries).startswith(shown.encode())
    assert all(entry.offset < len(shown) for entry in entries)


def test_only_content_counts(vocabulary: Vocabulary) -> None:
    call = '<|start|>assistant<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>'
    preamble = "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
    pieces, entries = read(vocabulary, THOUGHT + FINAL + "One.<|end|>" + preamble + call)
    assert "".join(piece.text for piece in pieces) == "One.\n\nI look."
    assert b"".join(entry.data for entry in entries) == b"One.I look."
    assert read(vocabulary, THOUGHT + call) == ([], [])


def test_text_without_a_header_of_its_own(vocabulary: Vocabulary) -> None:
    """It was no content when it came, so it has no tokens; nothing raises."""
    pieces, entries = read(vocabulary, FINAL + "More.<|end|><|channel|>final words<|return|>")
    assert "".join(piece.text for piece in pieces) == "More.\n\nwords"
    assert b"".join(entry.data for entry in entries) == b"More."


def test_raw_answers_have_their_tags(vocabulary: Vocabulary) -> None:
    tagged = f"{THOUGHT}{FINAL}{TEXT}"
    pieces, entries = read(vocabulary, tagged + "<|return|>", raw=True)
    assert "".join(piece.text for piece in pieces) == tagged
    assert b"".join(entry.data for entry in entries).decode() == tagged


def test_cut_off_amid_a_character(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encode("𓀀")
    assert len(tokens) > 1
    parser = HarmonyParser(vocabulary, opens_final=True)
    reader = Reader(parser, (), ContentLogprobs(vocabulary))
    assert reader.feed(tokens[0], Logprob(-1.0, [])) == []
    (piece,) = reader.finish()
    assert isinstance(piece, ContentDelta)
    assert [entry.data for entry in piece.logprobs] == [vocabulary.token_bytes[tokens[0]]]
