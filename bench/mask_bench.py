"""Count real JSON schemas that are enforced, how fast, and invalid values that are let through.

Reads `maskbench/data` of a clone of github.com/guidance-ai/jsonschemabench.
"""

import argparse
import hashlib
import json
import re
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import llguidance

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import JsonFormat
from gptoss_local.harmony.grammar import compile_grammar

_BYTES = llguidance.LLTokenizer("byte")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="maskbench/data")
    parser.add_argument("--part", type=int, default=3, help="take one of so many schemas by hash")
    parser.add_argument("--list", action="store_true", help="also name schemas that are not right")
    args = parser.parse_args()
    reasons: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    times_s: list[float] = []
    for path in sorted(args.folder.glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        if not _is_chosen(path.name, args.part) or not isinstance(case["schema"], dict):
            continue
        counts["schemas"] += 1
        start_s = time.thread_time()
        try:
            grammar = compile_grammar(JsonFormat(case["schema"]), opens_final=True)
        except UsageError as error:
            reasons[_reason(error.message)] += 1
            if args.list:
                print(f"refused {path.name}: {error.message}")
            continue
        finally:
            times_s.append(time.thread_time() - start_s)
        counts["accepted"] += 1
        _try_values(grammar, case.get("tests", ()), counts, path.name if args.list else "")
    for name, n in counts.items():
        print(f"{n:6} {name}")
    cuts = [f"{1000 * cut:.1f}" for cut in statistics.quantiles(times_s, n=100)]
    print(f"ms of a core: p50 {cuts[49]}, p99 {cuts[98]}, worst {1000 * max(times_s):.0f}")
    for reason, n in reasons.most_common(30):
        print(f"{n:6} refused: {reason}")


def _is_chosen(name: str, part: int) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % part == 0


def _reason(message: str) -> str:
    """Return why a schema is refused, without the place."""
    _, _, reason = message.partition("cannot be enforced: ")
    return re.sub(r" in [^ ]+|\d+", "", reason)[:80]


def _try_values(grammar: str, tests: list[Any], counts: Counter[str], name: str) -> None:
    """Lead each value through the mask byte by byte, its properties in the order that is given."""
    body = next(g for g in json.loads(grammar)["grammars"] if g["name"] == "body")
    text = json.dumps({"grammars": [body | {"name": "top"}]})
    limits = llguidance.LLParserLimits(verbose_errors=False)
    for i, test in enumerate(tests):
        matcher = llguidance.LLMatcher(_BYTES, text, log_level=0, limits=limits)
        tokens = _BYTES.tokenize_str(json.dumps(test["data"], ensure_ascii=False))
        is_taken = matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
        counts["valid values" if test["valid"] else "invalid values"] += 1
        if is_taken != test["valid"]:
            counts["valid, refused" if test["valid"] else "INVALID, LET THROUGH"] += 1
            if name:
                print(f"{'refuses valid' if test['valid'] else 'lets through'} {name}: {i}")


if __name__ == "__main__":
    main()
