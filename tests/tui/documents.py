"""Make answers as models write them: each kind of block, after every other one, or at random."""

import random
from collections.abc import Iterator

BLOCKS = {
    "paragraph": "The capital of **France** is *Paris*, and `x = 1` is code.",
    "hard-wrapped": "One line of prose\nand a second one,\nand a third.",
    "heading": "## The second section",
    "setext": "A title\n=======",
    "python": "```python\ndef f(x: int) -> int:\n    '''Two\n    lines.'''\n\n    return x\n```",
    "bash": "```bash\nfor f in *.txt; do echo \"$f\"; done\n```",
    "json": '```json\n{"name": "nano", "sizes": [1, 2]}\n```',
    "unlabelled": "```\nplain output  with   spaces\n\ttab\n```",
    "tildes": "~~~rust\nfn main() { println!(\"```\"); }\n~~~",
    "long-code": "```js\nconst text = '" + "a long line of code " * 9 + "end';\n```",
    "indented": "    indented(code)\n\n    more_of_it()",
    "table": "| model | year |\n|:------|-----:|\n| gpt-oss-20b | 2025 |\n| nano | 1999 |",
    "wide-table": (
        "| name | year | what it is | 説明 |\n|---|---|---|---|\n"
        f"| first | 2024 | {'words of a long cell ' * 6}| 日本語の長い説明文です |\n"
        "| second | 2025 | short | 短い |"
    ),
    "bullets": "- one\n- two with `code`\n- three",
    "loose-bullets": "* one\n\n* two\n\n  still two",
    "ordered": "1. first\n2. second\n3. third",
    "nested": (
        "1. Make it:\n\n   ```sh\n   make all\n\n   make install\n   ```\n\n"
        "   | a | b |\n   |---|---|\n   | 7 | 8 |\n"
        "2. Then\n   - inner\n     - innermost\n\n   > a quote in a list\n3. Done"
    ),
    "quote": "> Quoted words\n> in two lines\n>\n> - and a list",
    "rule": "---",
    "html": "<details>\n  <summary>More</summary>\n\nHidden words\n\n</details>",
    "inline-html": "Press <kbd>Ctrl</kbd>+<kbd>C</kbd>, then<br>wait.",
    "link": "See [the docs](https://example.com/a_b) and <https://example.org> or [ref].",
    "image": "![a picture](images/pic.png)",
    "inline-math": r"The sum \( a + b \) and $x$ cost $5 and $6, not \[ a = b \].",
    "display-math": "So:\n\\[\nx = a\n+ b\n\\]",
    "dollar-math": "$$\ny = m x + c\n$$",
    "footnote": "A claim.[^1]\n\n[^1]: Its source.\n\n[ref]: https://example.net",
    "tasks": "- [x] done\n- [ ] open",
    "cjk": "日本語の文章はとても長く、空白なしで続いていくので、行の終わりで折り返します。" * 3,
    "emoji": "Done 🎉 👩‍👩‍👧 ✅ and 한국어.",
    "long-word": "pneumono" * 30,
    "trailing-spaces": "A line with a break  \nand   the next.   ",
}  # fmt: skip


def every_pair(rng: random.Random, n_blocks: int = 24) -> Iterator[str]:
    """Yield documents in which each kind of block follows every kind, itself too."""
    left = {name: rng.sample(list(BLOCKS), len(BLOCKS)) for name in BLOCKS}
    while any(left.values()):
        name = max(left, key=lambda n: len(left[n]))
        names = [name]
        while left[name] and len(names) < n_blocks:
            name = left[name].pop()
            names.append(name)
        yield "".join(BLOCKS[name] + rng.choice(["\n\n", "\n\n", "\n\n\n"]) for name in names)


def at_random(rng: random.Random, n_blocks: int) -> str:
    """Return a document of random blocks, some of them within lists and quotes, or cut off."""
    text = ""
    for n in range(n_blocks):
        block = BLOCKS[rng.choice(list(BLOCKS))]
        for prefix in rng.choices(["", "- ", f"{n + 1}. ", "> "], k=2):
            rest = prefix if prefix == "> " else " " * len(prefix)
            first, *more = block.split("\n")
            block = "\n".join([prefix + first, *(rest + line for line in more)])
        text += block + rng.choice(["\n", "\n\n", "\n\n", "  \n\n", "\r\n\r\n"])
    return text if rng.random() < 0.7 else text[: rng.randrange(len(text))]


def pieces(rng: random.Random, text: str, n_max: int = 50) -> Iterator[str]:
    """Cut a text as a stream might."""
    start = 0
    while start < len(text):
        end = start + rng.randint(1, n_max)
        yield text[start:end]
        start = end
