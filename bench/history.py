"""Measure the store of chats at the size of years of use: 1,000 chats of 20 turns of 2 KB.

    python bench/history.py

Times are the fastest of five, in ms.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from gptoss_local.talk.history import History

N_CHATS, N_TURNS, N_WORDS = 1000, 20, 300
N_RANKS = 50_000  # different words
LETTERS = "eeeettttaaaooiinnsshhrrddlucmfwygpbvk"  # roughly as often as in English


def main() -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices(LETTERS, k=min(2 + n // 20, 8))) for n in range(N_RANKS)]

    def text() -> str:
        ranks = (int(N_RANKS ** rng.random()) for _ in range(N_WORDS))  # Zipf's law
        return " ".join(words[rank] for rank in ranks)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chats.sqlite3"
        history = History(path)
        start_s = time.perf_counter()
        for _ in range(N_CHATS):
            chat_id, leaf_id = history.new_chat("nano", "low"), None
            for _ in range(N_TURNS):
                leaf_id = history.add(chat_id, leaf_id, "user", text()).id
        add_ms = (time.perf_counter() - start_s) * 1000 / N_CHATS / N_TURNS
        print(f"{'add a turn':<28}{add_ms:8.2f}")
        history.close()
        print(f"{'size of the file, MB':<28}{path.stat().st_size / 1e6:8.1f}")

        show("open", lambda: History(path).close())
        history = History(path)
        turn = history.add(chat_id, leaf_id, "assistant", "", state="streaming")
        answers = iter([text() * 20 for _ in range(5)])
        show("list 1,000 chats", lambda: history.chats(1000))
        show("open a chat", lambda: history.branch(leaf_id))
        show("update 40 KB that stream", lambda: history.update(turn.id, content=next(answers)))
        start_s = time.perf_counter()
        history.update(turn.id, state="done")
        print(f"{'end 40 KB (index them)':<28}{(time.perf_counter() - start_s) * 1000:8.2f}")
        show("search a rare word", lambda: history.search(words[40_000]))
        show("search a frequent word", lambda: history.search(words[0]))
        show("search a letter", lambda: history.search("t"))
        show("search three words", lambda: history.search(" ".join(words[100:103])))
        show("search a sign, every text", lambda: history.search("=>"))
        chats = iter(history.chats(10))
        show("delete a chat", lambda: history.delete(next(chats).id))
        history.close()


def show(what: str, call: Callable[[], object]) -> None:
    times = []
    for _ in range(5):
        start_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - start_s)
    print(f"{what:<28}{min(times) * 1000:8.2f}")


if __name__ == "__main__":
    main()
