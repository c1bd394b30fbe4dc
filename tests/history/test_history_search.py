"""Searches find words of any script, show short snippets, and survive any text."""

import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptoss_local.talk.history import MATCH_END, MATCH_START, History


def chat_of(history: History, *texts: str, title: str = "untitled") -> int:
    chat_id = history.new_chat("nano", "low", title)
    parent_id = None
    for text in texts:
        parent_id = history.add(chat_id, parent_id, "assistant", text).id
    return chat_id


def found(history: History, words: str) -> list[str]:
    """Snippets with matches in square brackets."""
    snippets = (hit.snippet for hit in history.search(words))
    return [s.replace(MATCH_START, "[").replace(MATCH_END, "]") for s in snippets]


def test_words(history: History) -> None:
    chat_of(history, "The café of Zürich is open.", "def read_file(path): pass", "other")
    assert found(history, "CAFE") == ["The [café] of Zürich is open."]
    assert found(history, "open cafe") == ["The [café] of Zürich is [open]."]
    assert found(history, "zur") == ["The café of [Zürich] is open."]  # still being typed
    assert found(history, "zur open") == []  # but only the last word is
    assert found(history, '"of Zürich"') == ["The café [of Zürich] is open."]
    assert found(history, '"of Zür') == ["The café [of Zürich] is open."]
    assert found(history, '"Zürich of"') == []
    assert found(history, "read_file") == ["def [read_file](path): pass"]
    assert found(history, "open other") == []


@pytest.mark.parametrize(
    ("text", "words", "snippet"),
    [
        ("什么是首都？", "首都", "什么是[首都]？"),
        ("東京は日本の首都です", "日本 首都", "東京は[日本]の[首都]です"),
        ("서울은 수도입니다", "서울", "[서울]은 수도입니다"),
        ("กรุงเทพเป็นเมืองหลวง", "เมือง", "กรุงเทพเป็น[เมือง]หลวง"),
        ("x => x + 1", "=>", "x [=>] x + 1"),
        ("it is 100% sure", "%", "it is 100[%] sure"),
        ("a_b", "_", "a[_]b"),
        ("a^b", "^", "a[^]b"),
        ("party 🎉 time", "🎉", "party [🎉] time"),
        ("Привет, мир", "МИР", "Привет, [мир]"),
        ("say NEAR(a b) now", "NEAR(a", "say [NEAR(a] b) now"),
        ("content: yes", "content:", "[content]: yes"),
        ("this AND that", "AND", "this [AND] that"),
    ],
)
def test_any_script_and_sign(history: History, text: str, words: str, snippet: str) -> None:
    chat_of(history, "nothing of it", text)
    assert found(history, words) == [snippet]


HOSTILE = (
    *("", " ", '"', '""', '"" ""', "*", "a*", "NOT", "a NOT b", "NEAR(", "NEAR(a b, 2)", "(", ")"),
    *("col:x", "{a b}: c", "^a", "-a", "+", "'", "';--", "\\", "a OR", "\0", "\ud800", "\x02\x03"),
    *("a " * 5000, "a" * 100_000, '"' * 999, "%" * 5000, "中" * 5000, "= " * 500, "((((" * 99),
)


def test_hostile_words(history: History) -> None:
    chat_of(history, "a plain text with nothing special", title="NEAR")
    for words in HOSTILE:
        assert len(history.search(words)) <= 2
    assert history.search("plain")  # still works
    chat_of(history, *(f"same {n}" for n in range(60)))
    assert len(history.search("same")) == 50
    assert len(history.search("same", limit=3)) == 3


LETTERS = st.text(string.ascii_letters + "äßñ", min_size=1)
SIGNS = st.text(st.characters() | st.sampled_from(string.punctuation + "aé中 \t\n"), max_size=40)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(LETTERS, min_size=1, max_size=8), signs=SIGNS)
def test_a_text_is_found_by_its_words_and_no_text_breaks_it(
    history: History, words: list[str], signs: str
) -> None:
    chat_id = chat_of(history, " ".join(words))
    assert chat_id in {hit.chat_id for hit in history.search(" ".join(reversed(words)), 10_000)}
    chat_of(history, signs)
    for hit in history.search(signs):
        assert not set(hit.snippet) & (set(map(chr, range(32))) - {MATCH_START, MATCH_END})
    history.delete(chat_id)


def test_snippets_are_short_and_safe(history: History) -> None:
    far = "word " * 5000
    chat_of(history, f"{far}\n\x1b[31m needle\x1b[0m\r\n\x9b2Jnext {far}", f"{far} => {far}")
    (snippet,) = found(history, "needle")
    assert "[needle]" in snippet
    assert len(snippet) < 200
    assert not set(snippet) & {"\x1b", "\r", "\n", "\x9b"}
    (snippet,) = found(history, "=>")
    assert "word [=>] word" in snippet
    assert snippet[0] == snippet[-1] == "…"
    assert len(snippet) < 200
