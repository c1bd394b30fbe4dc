"""Plant small bugs, one at a time, and count those that no test notices.

Cosmic Ray (`pip install -e ".[mutate]"`) changes operators, conditions and numbers of the areas
where a bug is expensive and quiet; elements are left out of sets and tuples, and tokens of the
page's JavaScript are replaced. Each area has the tests that must notice, which run on a copy of the
tree. At most one bug in twenty may survive.
"""

import argparse
import contextlib
import difflib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

Verdict = Literal["noticed", "hung", "SURVIVED"]

ROOT = Path(__file__).parents[1]
MOST_SURVIVORS = 0.05


class Area(NamedTuple):
    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "access": Area(
        ("server/guard.py", "server/access.py", "server/origin.py"),
        ("server/test_doors.py", "server/test_lan.py"),
    ),
    "limits": Area(
        ("server/keys.py", "server/body.py"),
        ("server/test_keys.py", "server/test_body.py", "server/test_large_bodies.py"),
    ),
    "consent": Area(
        ("talk/tools/consent.py", "talk/tools/toolbox.py"),
        ("tools/test_toolbox.py", "tools/mcp/test_servers.py", "tools/test_programs.py"),
    ),
    "accounting": Area(
        ("talk/answer.py", "runner/counters.py"),
        (
            *("server/test_metrics.py", "server/test_corrections.py", "tui/test_continue.py"),
            "server/test_keys.py",
        ),
    ),
    "plan": Area(
        ("machine/plan/placement.py", "machine/plan/memory.py", "machine/plan/measured.py"),
        (
            *("plan/test_memory.py", "plan/test_gpu_memory.py", "plan/test_measured.py"),
            *("plan/test_words.py", "plan/test_kinds_of_machines.py", "plan/test_cache_type.py"),
        ),
    ),
    "canary": Area(("engine/llama/canary.py",), ("engine/test_canary.py",)),
    "prefixes": Area(
        ("engine/worker/cache/prefix_cache.py",),
        ("engine/test_prefix_reuse.py", "engine/test_archive.py", "engine/test_interleavings.py"),
    ),
    "page": Area(
        ("server/web/store.js", "server/web/tree.js"),
        ("web/test_chats.py", "web/test_chat.py", "web/test_files.py", "web/test_together.py"),
    ),
}
"""Sources in `gptoss_local` and tests in `tests`, the quickest first."""

OPERATORS = [
    *("AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop"),
    *("ReplaceFalseWithTrue", "ReplaceTrueWithFalse", "ReplaceUnaryOperator_Delete_Not"),
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Add")
    ),
    *(
        f"ReplaceComparisonOperator_{a}_{b}"
        for names in (("Eq", "NotEq"), ("Is", "IsNot"), ("Lt", "LtE", "Gt", "GtE"))
        for a, b in itertools.permutations(names, 2)
    ),
]
JAVASCRIPT = {
    "===": "!==",
    "!==": "===",
    "&&": "||",
    "||": "&&",
    "??": "&&",
    " + ": " - ",
    " - ": " + ",
    " < ": " <= ",
    " > ": " >= ",
    "true": "false",
    "false": "true",
    "(!": "(",
}

NEUTRAL = re.compile(r"\b(?:frozen|slots|strict|indent)=")
"""Lines that are left as they are: they guard against mistakes of the code that follows."""

EQUIVALENT = {
    'numbered = (f"{prefixed[: 61]}_{n}" for n in itertools.count(2))': (
        "up to a hundred tools of one name still have 64 characters"
    ),
    "weights=weights + (facts.output_bytes if has_head else 1),": "a byte is below any alignment",
    '_CACHE_BLOCK: dict[CacheType, int] = {"f16": 1, "bf16": 2, "q8_0": 32, "q4_0": 32}  '
    "# ggml-common.h": "all heads have an even size",
}
"""Changed lines that behave as before, and why."""


class Mutant(NamedTuple):
    path: Path
    before: str
    text: str

    def changes(self) -> list[str]:
        lines = difflib.unified_diff(
            self.before.splitlines(),
            self.text.splitlines(),
            n=0,
            lineterm="",
        )
        return [line for line in lines if line[:3] not in ("---", "+++")]

    def is_equivalent(self) -> bool:
        changed = [line[1:].strip() for line in self.changes() if line[0] == "+"]
        return any(line in EQUIVALENT or NEUTRAL.search(line) for line in changed)


class DropElement:
    """An operator of Cosmic Ray's kind: one element less in a tuple, list or set."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        is_display = node.type in ("testlist_comp", "dictorsetmaker")
        if is_display and {child.get_code().strip() for child in node.children[1::2]} == {","}:
            for child in node.children[::2]:
                yield child.start_pos, child.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        del node.children[2 * index : 2 * index + 2]
        return node


def nodes(node: Any) -> Iterator[Any]:
    """Yield the nodes of a tree in the order in which Cosmic Ray counts them."""
    yield node
    for child in getattr(node, "children", ()):
        yield from nodes(child)


def python_mutants(path: Path, rng: random.Random) -> Iterator[Mutant]:
    """Yield mutants in random order: a place first, then a change of it."""
    from cosmic_ray.ast import get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (ROOT / path).read_text(encoding="utf-8")
    tree, places = get_ast(source), dict[tuple[int, int], list[tuple[Any, int]]]()
    for operator in (DropElement(), *(get_operator(f"core/{name}")() for name in OPERATORS)):
        found = (start for node in nodes(tree) for start, _ in operator.mutation_positions(node))
        for occurrence, place in enumerate(found):
            places.setdefault(place, []).append((operator, occurrence))
    for place in rng.sample(sorted(places), len(places)):
        operator, occurrence = rng.choice(places[place])
        text = mutate_code(source, operator, occurrence)
        with contextlib.suppress(SyntaxError):
            compile(text, path, "exec")
            yield Mutant(path, source, text)


def javascript_mutants(path: Path, rng: random.Random) -> Iterator[Mutant]:
    source = (ROOT / path).read_text(encoding="utf-8")
    comments = [m.span() for m in re.finditer(r"/\*.*?\*/|//[^\n]*", source, re.DOTALL)]
    found = list(re.finditer("|".join(map(re.escape, JAVASCRIPT)), source))
    for match in rng.sample(found, len(found)):
        start, end = match.span()
        if not any(first <= start < last for first, last in comments):
            yield Mutant(path, source, source[:start] + JAVASCRIPT[match[0]] + source[end:])


def sample(area: Area, n: int, seed: int) -> list[Mutant]:
    """Return so many mutants, in turn of the sources."""
    rng = random.Random(seed)
    make = {".py": python_mutants, ".js": javascript_mutants}
    paths = [Path("gptoss_local", source) for source in area.sources]
    rounds = itertools.zip_longest(*(make[path.suffix](path, rng) for path in paths))
    mutants = filter(None, itertools.chain.from_iterable(rounds))
    return list(itertools.islice((m for m in mutants if not m.is_equivalent()), n))


class Copy:
    """A copy of the tree, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._n_writes = 0
        listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def write(self, path: Path, text: str) -> None:
        (self.folder / path).write_text(text, encoding="utf-8")
        self._n_writes += 1  # a modified time of its own, or Python would take what it compiled
        os.utime(self.folder / path, (self._n_writes, self._n_writes))

    def verdict(self, tests: tuple[str, ...], timeout_s: float) -> Verdict:
        """Run the tests until one fails, and say what came of it."""
        paths = [f"tests/{test}" for test in tests]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not timing", *paths]
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        with (self.folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                return "noticed" if process.wait(timeout_s) else "SURVIVED"
            except subprocess.TimeoutExpired:
                return "hung"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", choices=[*AREAS, []], help="all without any")
    parser.add_argument("--n", type=int, default=9, help="bugs in each area")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = Counter[Verdict]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for name in options.areas or AREAS:
            area, began_s = AREAS[name], time.monotonic()
            if copy.verdict(area.tests, 600) != "SURVIVED":
                print((copy.folder / "output").read_text(encoding="utf-8")[-3000:])
                raise SystemExit(f"the tests of {name} fail without a change")
            timeout_s = 4 * (time.monotonic() - began_s)
            for mutant in sample(area, options.n, options.seed):
                copy.write(mutant.path, mutant.text)
                verdict = copy.verdict(area.tests, timeout_s)
                copy.write(mutant.path, mutant.before)
                counts[verdict] += 1
                print(f"{name} {verdict} {mutant.path}", *mutant.changes(), sep="\n", flush=True)
    print(", ".join(f"{verdict} {n}" for verdict, n in counts.items()))
    return int(counts["SURVIVED"] > MOST_SURVIVORS * counts.total())


if __name__ == "__main__":
    sys.exit(main())
