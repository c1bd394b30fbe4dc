"""Tokens become events: stop strings, the order of the pieces, log-probabilities of their text."""

import pytest

from gptoss_local.engine.protocol import Logprob
from gptoss_local.harmony import ContentDelta, ReasoningDelta, TokenLogprob, Tool, Vocabulary
from gptoss_local.harmony.parser import HarmonyParser, RawParser
from gptoss_local.harmony.reader import Reader, StopFilter, WaitingLogprobs
from gptoss_local.harmony.vocabulary import RETURN

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("stop", "text", "expected"),
    [
        ((), "abc", "abc"),
        (("",), "abc", "abc"),
        (("END",), "one END two", "one "),
        (("b", "a"), "xab", "x"),
        (("aab",), "aaab", "a"),
        (("END",), "only EN", "only EN"),
    ],
)
def test_a_stop_string_is_found_in_any_pieces(
    stop: tuple[str, ...], text: str, expected: str
) -> None:
    for size in range(1, len(text) + 1):
        stop_filter, shown = StopFilter(stop), ""
        for start in range(0, len(text), size):
            shown += stop_filter.feed(text[start : start + size])
            if stop_filter.is_stopped:
                break
        assert shown + stop_filter.flush() == expected
        assert stop_filter.is_stopped == (expected != text)


def test_only_the_beginning_of_a_stop_string_is_held() -> None:
    stop_filter = StopFilter(("END",))
    assert [stop_filter.feed(text) for text in ("hello", " E", "x")] == ["hello", " ", "Ex"]


THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>I look it up.\n<|end|><|start|>assistant"
CALL = ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>'
FINAL = "<|channel|>final<|message|>"
TEXT = "東京 🙂 is 👋🏽 ça 𓀀!"


def shown(vocabulary: Vocabulary, tagged: str, *stop: str) -> list[str]:
    """Return the pieces that a client shows, joined with neighbours of their kind."""
    reader = Reader(HarmonyParser(vocabulary, (Tool("f"),)), stop, None)
    deltas = [d for token in vocabulary.encode_tagged(tagged) for d in reader.feed(token)]
    pieces: list[str] = []
    last = None
    for delta in [*deltas, *reader.finish()]:
        text = delta.text if isinstance(delta, ContentDelta | ReasoningDelta) else "f()"
        if last is type(delta):
            pieces[-1] += text
        else:
            pieces.append(text)
        last = type(delta)
    return pieces


@pytest.mark.parametrize("stop", [(), ("\n\nUser:",), ("nowhere", "\n!")])
def test_a_preamble_ends_before_its_call(vocabulary: Vocabulary, stop: tuple[str, ...]) -> None:
    """Its last newline is held back, as it may begin a stop string."""
    expected = ["Hm.", "I look it up.\n", "f()"]
    assert shown(vocabulary, THOUGHT + PREAMBLE + CALL, *stop) == expected
    assert shown(vocabulary, PREAMBLE + THOUGHT + CALL, *stop) == ["I look it up.\n", "Hm.", "f()"]


def test_nothing_follows_a_stop_string(vocabulary: Vocabulary) -> None:
    assert shown(vocabulary, THOUGHT + PREAMBLE + CALL, " up.") == ["Hm.", "I look it"]


def scored(
    vocabulary: Vocabulary, tagged: str, *stop: str, raw: bool = False
) -> tuple[str, list[TokenLogprob], int]:
    """Content, those of its tokens that are scored, and the number of its pieces.

    Token i has -i / 1000.
    """
    parser = RawParser(vocabulary) if raw else HarmonyParser(vocabulary, (Tool("f"),))
    reader = Reader(parser, stop, WaitingLogprobs(vocabulary))
    deltas = []
    for i, token in enumerate(vocabulary.encode_tagged(tagged)):
        deltas += reader.feed(token, Logprob(-i / 1000, [(token, -i / 1000), (RETURN, -9.0)]))
    pieces = [d for d in [*deltas, *reader.finish()] if isinstance(d, ContentDelta)]
    entries = [t for piece in pieces for t in piece.logprobs if t.offset is not None]
    return "".join(piece.text for piece in pieces), entries, len(pieces)


def data(entries: list[TokenLogprob]) -> str:
    return b"".join(entry.data for entry in entries).decode()


def test_log_probabilities_cover_the_content(vocabulary: Vocabulary) -> None:
    text, entries, n_pieces = scored(vocabulary, f"{THOUGHT}{FINAL}{TEXT}<|return|>")
    assert text == data(entries) == TEXT
    assert len(entries) > n_pieces > 5  # characters of several tokens
    values = [entry.logprob for entry in entries]
    assert values == sorted(values, reverse=True)
    for entry in entries:
        assert entry.top == ((entry.data, entry.logprob), (b"<|return|>", -9.0))
        assert TEXT.encode().startswith(entry.data, len(TEXT[: entry.offset].encode())) or (
            entry.data.decode(errors="ignore") == ""
        )
    tagged = f"{THOUGHT}{FINAL}{TEXT}"
    text, entries, _ = scored(vocabulary, f"{tagged}<|return|>", raw=True)
    assert text == data(entries) == tagged


@pytest.mark.parametrize(
    "stop", ["👋🏽", " is", "𓀀!", "京", "nowhere", "!", "京 🙂 i", "\U0001f3fd ça"]
)
def test_text_before_a_stop_string_has_all_its_tokens(vocabulary: Vocabulary, stop: str) -> None:
    expected = TEXT.partition(stop)[0]
    text, entries, _ = scored(vocabulary, f"{THOUGHT}{FINAL}{TEXT}<|return|>", stop)
    assert text == expected
    assert b"".join(entry.data for entry in entries).startswith(text.encode())
    assert all((entry.offset or 0) < len(text) for entry in entries)


@pytest.mark.parametrize(
    ("tagged", "content", "tokens"),
    [
        (f"{FINAL}One.<|end|><|start|>assistant{PREAMBLE}{CALL}", "One.\n\nI look it up.\n",
         "One.I look it up.\n"),
        (CALL, "", ""),
        # text without a header was no content when it came
        (f"{FINAL}More.<|end|><|channel|>final words<|return|>", "More.\n\nwords", "More."),
    ],
)  # fmt: skip
def test_only_content_is_scored(
    vocabulary: Vocabulary, tagged: str, content: str, tokens: str
) -> None:
    text, entries, _ = scored(vocabulary, THOUGHT + tagged)
    assert (text, data(entries)) == (content, tokens)


def test_an_answer_cut_off_amid_a_character(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encode("𓀀")
    assert len(tokens) > 1
    parser = HarmonyParser(vocabulary, opens_final=True)
    reader = Reader(parser, (), WaitingLogprobs(vocabulary))
    assert reader.feed(tokens[0], Logprob(-1.0, [])) == []
    (piece,) = reader.finish()
    assert isinstance(piece, ContentDelta)
    assert [entry.data for entry in piece.logprobs] == [vocabulary.token_bytes[tokens[0]]]
