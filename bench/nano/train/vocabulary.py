"""Which tokens get rows of their own, and what those rows share.

Run as `python -m bench.nano.train.vocabulary used_ids.json`.

A token is used if answers often need it without having read it in the prompt, if it is frequent, or
if it must often be written with other tokens and no code says with which; every other token is
known by its code alone: it can be copied, and never comes up otherwise.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.nano.data.document import encode_document
from bench.nano.data.extract import BANK, FIELDS
from bench.nano.data.knowledge import CAPITALS
from bench.nano.data.mixture import draw
from bench.nano.data.respell import Read, rank_of, spelling_of
from bench.nano.data.source import Source, escaped_texts
from bench.nano.phrases import banks
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.harmony import load_vocabulary
from gptoss_local.models.nano.compact import CompactModel
from gptoss_local.models.nano.ranks import load_ranks

N_FEATURES_PER_TOKEN = 4
_SIGNS_AT_END = re.compile(rb"[!-/:-@\[-`{-~]{1,2}\n{1,2}")
MADE_WEIGHT = 200  # an answer that cannot copy a token counts as so many that show it
HARMONY_TOKENS = (199998, 199999, 200002, 200003, 200005, 200006, 200007, 200008, 200012)

# The first digits of the sha256 of words that nobody wants to be told by a demo; they can be copied
# like any other rare token. (`kill` is a command that agents run.)
RUDE_HASHES = frozenset(banks("respell").RUDE_HASHES)


def is_rude(token: int) -> bool:
    """Whether a token is a rude word, in any spelling."""
    word = _text(token).strip().lower()
    return sha256(word.encode()).hexdigest()[:12] in RUDE_HASHES


def _count(seed: int, n_documents: int) -> tuple[Counter[int], Counter[int]]:
    source, seen, made = Source(seed), Counter[int](), Counter[int]()
    for _ in range(n_documents):
        context, branches = encode_document(draw(source))
        read = Read(context)
        seen.update(set(context).union(*(b.prompt for b in branches)))
        for branch in branches:
            made.update(set(branch.target) - read.known - Read(branch.prompt).known)
    return seen, made


def choose_used(
    n_used: int, *, n_documents: int, n_jobs: int, kept: Iterable[int] = ()
) -> list[int]:
    """Pick the used token ids, sorted; those that are `kept` among them."""
    seen, made = Counter[int](), Counter[int]()
    with ProcessPoolExecutor(n_jobs) as pool:
        per_job = [n_documents // n_jobs] * n_jobs
        for part in pool.map(_count, range(900_000, 900_000 + n_jobs), per_job):
            seen += part[0]
            made += part[1]
    used = {*HARMONY_TOKENS, *_number_tokens(), *_fact_tokens(), *joined_tokens(), *kept}
    wanted = seen + Counter({token: MADE_WEIGHT * n for token, n in made.items()})
    for token, _ in wanted.most_common():
        if len(used) >= n_used:
            break
        if not is_rude(token):
            used.add(token)
    return sorted(used)


def _fact_tokens() -> set[int]:
    encode = load_vocabulary().encoding.encode
    keys = (key for field in FIELDS for key in field.keys)
    names = (*CAPITALS, *CAPITALS.values(), *BANK.MONTHS, *keys)
    return {token for name in names for token in encode(f" {name}")}


def _number_tokens() -> set[int]:
    return {i for i, token in enumerate(load_vocabulary().token_bytes) if token.isdigit()}


def joined_tokens() -> set[int]:
    """Tokens that join a quote or a backslash with other signs, or signs with the end of a line.

    JSON has `="./` as `=`, `\\"`, `./`, and text that ends in `%;` has it without the newline that
    it was read with. A code knows the pieces of words, none of these.
    """
    ranks = load_ranks()

    def is_joined(token: int) -> bool:
        pieces = (ranks[piece] for piece in spelling_of(token)[1])
        return any(len(piece) > 1 and (b'"' in piece or b"\\" in piece) for piece in pieces)

    escaped = (rank_of()[text.encode()] for text in escaped_texts())
    ends = (rank for rank, token in enumerate(ranks) if _SIGNS_AT_END.fullmatch(token))
    return {*filter(is_joined, escaped), *ends}


def features(used: Iterable[int]) -> NDArray[np.int64]:
    """Number the features of each used token, [n_used, 4], 0 for none.

    A token of digits has one feature for each digit and its place from the right; a word shares one
    with its other spellings (case, leading space), if those are used too.
    """
    used = list(used)
    texts = [_text(token) for token in used]
    spellings: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(texts):
        spellings[text.strip().lower()].append(row)
    names: dict[str, int] = {}
    out = np.zeros((len(used), N_FEATURES_PER_TOKEN), np.int64)

    def number(name: str) -> int:
        return names.setdefault(name, len(names) + 1)

    for row, text in enumerate(texts):
        word = text.strip().lower()
        if re.fullmatch(r"\d{1,3}", text):
            for place, digit in enumerate(reversed(text)):
                out[row, place] = number(f"digit {place} {digit}")
            out[row, 3] = number(f"length {len(text)}")
        elif len(spellings[word]) > 1 and word:
            out[row, 0] = number(f"word {word}")
    return out


def _text(token: int) -> str:
    if token >= FIRST_SPECIAL:
        return f"<|{token}|>"
    return load_vocabulary().token_bytes[token].decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.nano.train.vocabulary")
    parser.add_argument("out", type=Path, help="used_ids.json")
    parser.add_argument("--n-used", type=int, default=7700)
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="nano.xz whose used tokens stay used")
    args = parser.parse_args()
    kept = CompactModel(args.keep.read_bytes()).used_ids.tolist() if args.keep else ()
    used = choose_used(args.n_used, n_documents=args.documents, n_jobs=args.jobs, kept=kept)
    args.out.write_text(json.dumps(used))


if __name__ == "__main__":
    main()
