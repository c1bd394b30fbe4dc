"""Full-text search over turns and titles: an index of words, and a scan.

A scan finds text without words, such as Chinese or `=>`, and any text with a passphrase.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable

from gptoss_local.talk.history.lock import opened
from gptoss_local.talk.history.plain import one_line, storable
from gptoss_local.talk.history.rows import Hit

MATCH_START, MATCH_END = "\x02", "\x03"
"""Around every match of a snippet. The text itself may have them, too: expect no pairs."""
_START, _END = "\ue000", "\ue001"  # in their place until `one_line` has removed control characters

_TERM = re.compile(r'"([^"]*)"?|([^\s"]+)')
_UNSPACED = re.compile(  # Thai to Khmer, kana, Han; Hangul has spaces, but endings without
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_MAX_TERMS, _MAX_TERM_CHARS = 32, 200  # SQLite refuses huge expressions
_SNIPPET_WORDS, _SNIPPET_CHARS = 16, 80
_TITLE = opened("chat.title")


def search(database: sqlite3.Connection, words: str, limit: int, *, has_index: bool) -> list[Hit]:
    """Return titles, turns, then chats of a folder of that name, best matches first.

    A title or a folder counts only if none of the chat's turns matches.
    """
    terms = _parse_terms(words)
    if not terms:
        return []
    column = str if has_index else opened  # PERF: 0.4 s for 40 MB, per term
    in_words = not any(_UNSPACED.search(t) or not re.search(r"[^\W_]", t) for t in terms)
    if not (has_index and in_words):
        titles, turns = _scan(database, terms, limit, column)
    else:
        titles, turns = _look_up(database, terms, limit)
    found = {hit.chat_id for hit in turns}
    titles = [hit for hit in titles if hit.chat_id not in found]
    found |= {hit.chat_id for hit in titles}
    in_folders = _in_chats(database, terms, limit, column, "chat.folder")
    return [*titles, *turns, *(hit for hit in in_folders if hit.chat_id not in found)][:limit]


def _parse_terms(words: str) -> list[str]:
    """Return words, and phrases in double quotes; a quote may be open while a user types."""
    found = (phrase or word for phrase, word in _TERM.findall(storable(words)))
    terms = (one_line(term)[:_MAX_TERM_CHARS] for term in found)
    return [term for term in terms if term][:_MAX_TERMS]


def _look_up(
    database: sqlite3.Connection, terms: list[str], limit: int
) -> tuple[list[Hit], list[Hit]]:
    # Terms have no quotes, so each is a string in the language of FTS5.
    query = " AND ".join(f'"{term}"' for term in terms) + "*"
    titles = database.execute(
        """
        SELECT chat.id, NULL, chat.title, highlight(chat_words, 0, ?, ?), created_s
        FROM chat_words CROSS JOIN chat ON chat.id = chat_words.rowid
        WHERE chat_words MATCH ? ORDER BY rank, chat.id DESC LIMIT ?
        """,
        (_START, _END, query, limit),
    )
    turns = database.execute(
        """
        SELECT chat.id, turn.id, chat.title, snippet(turn_words, 0, ?, ?, '…', ?), turn.created_s
        FROM turn_words CROSS JOIN turn ON turn.id = turn_words.rowid
        CROSS JOIN chat ON chat.id = chat_id
        WHERE turn_words MATCH ? ORDER BY rank LIMIT ?
        """,  # CROSS JOIN keeps the order; FTS5 itself sorts by rank and makes `limit` snippets
        (_START, _END, _SNIPPET_WORDS, query, limit),
    )
    return [_hit(row, row[3]) for row in titles], [_hit(row, row[3]) for row in turns]


def _scan(
    database: sqlite3.Connection, terms: list[str], limit: int, column: Callable[[str], str]
) -> tuple[list[Hit], list[Hit]]:
    """Scan every text, newest first. PERF: 30 ms for 40 MB of it (bench/results/chat.md)."""
    like, patterns = _like(terms, column)
    turns = database.execute(
        f"SELECT chat.id, turn.id, {_TITLE}, {opened('turn.content')}, turn.created_s "
        f"FROM turn CROSS JOIN chat ON chat.id = chat_id WHERE {like('turn.content')} "
        "AND state <> 'streaming' ORDER BY turn.id DESC LIMIT ?",
        (*patterns, limit),
    )
    return _in_chats(database, terms, limit, column, "chat.title"), _hits(turns, terms)


def _in_chats(
    database: sqlite3.Connection,
    terms: list[str],
    limit: int,
    read: Callable[[str], str],
    column: str,
) -> list[Hit]:
    like, patterns = _like(terms, read)
    found = database.execute(
        f"SELECT id, NULL, {_TITLE}, {opened(column)}, created_s FROM chat WHERE {like(column)} "
        "ORDER BY updated_s DESC, id DESC LIMIT ?",
        (*patterns, limit),
    )
    return _hits(found, terms)


def _like(terms: list[str], read: Callable[[str], str]) -> tuple[Callable[[str], str], list[str]]:
    patterns = ["%" + re.sub(r"([%_^])", r"^\1", term) + "%" for term in terms]
    return lambda column: " AND ".join([f"{read(column)} LIKE ? ESCAPE '^'"] * len(terms)), patterns


def _hits(rows: Iterable[tuple[int, int | None, str, str, float]], terms: list[str]) -> list[Hit]:
    any_term = re.compile("|".join(map(re.escape, terms)), re.IGNORECASE)
    return [_hit(row, _marked(row[3], any_term)) for row in rows]


def _marked(text: str, any_term: re.Pattern[str]) -> str:
    found = any_term.search(text)
    start = max(0, found.start() - _SNIPPET_CHARS // 2) if found else 0
    cut = text[start : start + 2 * _SNIPPET_CHARS]
    marked = any_term.sub(lambda match: f"{_START}{match[0]}{_END}", cut)
    before, after = "…" if start else "", "…" if start + len(cut) < len(text) else ""
    return f"{before}{marked}{after}"


def _hit(row: tuple[int, int | None, str, str, float], marked: str) -> Hit:
    chat_id, turn_id, title, _, created_s = row
    snippet = one_line(marked).translate({ord(_START): MATCH_START, ord(_END): MATCH_END})
    return Hit(chat_id=chat_id, turn_id=turn_id, title=title, snippet=snippet, created_s=created_s)
