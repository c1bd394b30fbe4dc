"""Answers of the scripted model, as real models write, and the questions for them."""

from tests.scripted_engine import Script, answer, calls

RICH = r"""**Newton's method** finds a root of \( f \) by following its tangent:

\[
x_{n+1} = x_n - \frac{f(x_n)}{f'(x_n)}
\]

For $f(x) = x^2 - a$ this becomes Heron's rule, known for about 2,000 years. It costs nothing but
a division, while a table of logarithms once cost $5 or $6.

```python
def square_root(a: float, tolerance: float = 1e-12) -> float:
    '''Return the positive root of x * x = a.'''
    x = max(a, 1.0)
    while abs(x * x - a) > tolerance * a:
        x = (x + a / x) / 2  # the mean of two guesses
    return x
```

How fast it gets there, for `a = 2`:

| step | x | error |
|:-----|---:|------:|
| 0 | 2.0 | 0.59 |
| 1 | 1.5 | 0.086 |
| 2 | 1.4166666667 | 0.0025 |
| 3 | 1.4142156863 | 0.0000021 |

1. The error is **squared** with every step.
2. It needs a start with \( x_0 > 0 \).

> The method diverges where \( f' \) is close to zero.

中文：牛顿法收敛得很快。日本語でも読めます。 See <https://example.com/newton> and
[the proof](https://example.org/proof).
"""

THOUGHT = (
    "The user asks about Newton's method. I should give the formula, a short program and show how "
    "fast it converges.\n\nA table for a = 2 would be good."
)


def program(n_functions: int) -> str:
    functions = (
        f"def f{n}(x: int) -> int:\n    return x * {n} + len('words')\n\n"
        for n in range(n_functions)
    )
    code = "".join(functions)
    return f"Here is a longer program:\n\n```python\n{code}```\n\nThat is all of it.\n"


CODE = program(80)

TABLE = "Write a long table"
ROWS = "Here it is:\n\n| n | square |\n|---|---:|\n" + "".join(
    f"| the number {n} | **{n * n}** |\n" for n in range(130)
)

LONG_TABLE = "Write a table of 200 rows"
LONG_ROWS = "| Name | Use | Weak at | Notes |\n|---|---|---|---|\n" + "".join(
    f"| **name {n}** | what it is good for and where it is used by people | `f_{n}()` | more |\n"
    for n in range(200)
)

COUNT = " ".join(f"{n}," for n in range(1, 400))

LONG_CITY = "\n".join(f"street {n}" for n in range(200)) + "\nTHE END"
BAD_CITY = "<img src=x onerror=window.hacked=1>\u202etxt.exe\u200b</pre><script>hacked=1</script>"
RIGHT_TO_LEFT = (
    "from \u05d0\u05d1\u05d2 1 to 2 \u05d3\u05d4\u05d5, \u05d6\u05d7\u05d8 / \u05d9\u05db\u05dc"
)

PLAIN = {
    "What is the capital of France?": "The capital of France is **Paris**.",
    "What is the capital of Italy?": "The capital of Italy is **Rome**.",
}


DRAWN = "```html\n<ol>\n" + "".join(f"<li>item {n}</li>\n" for n in range(60)) + "</ol>\n```\n"


def say_all(script: Script) -> None:
    """Let the model say all of it."""
    script.say("Explain Newton's method", answer(RICH, THOUGHT, tok_s=400.0))
    script.say("Explain it slowly", answer(RICH, THOUGHT, tok_s=400.0, pauses={150: 4.0}))
    script.say("Explain it fast", answer(RICH, THOUGHT, tok_s=20_000.0, n_per_frame=8))
    script.say("Write a long program", answer(CODE, tok_s=2_000.0, n_per_frame=4))
    script.say("Write it slowly", answer(CODE, tok_s=400.0, n_per_frame=4))
    script.say(TABLE, answer(ROWS, tok_s=300.0))
    script.say(LONG_TABLE, answer(LONG_ROWS, tok_s=600.0))
    script.say("Think long", answer("Done **thinking**.", COUNT, tok_s=60))
    script.say("Count slowly", answer(COUNT, "I count.", tok_s=40.0))
    script.say("Count with a pause", answer(COUNT, tok_s=400.0, pauses={40: 60.0}))
    script.say("Draw a page slowly", answer(DRAWN, tok_s=150.0))
    script.say("Read slowly", answer("I have read it.", prefill_s=2.0))
    script.say("Fail now", answer("This answer will break off in the middle", fails_at=5))
    script.say("Use a tool", calls("get_weather", {"city": "Tokyo"}), answer("It is sunny."))
    script.say("Use a long command", calls("get_weather", {"city": LONG_CITY}), answer("It ran."))
    script.say("Use a bad word", calls("get_weather", {"city": BAD_CITY}), answer("It is bad."))
    script.say("Use Hebrew", calls("get_weather", {"city": RIGHT_TO_LEFT}), answer("It is."))
    script.say("Use a slow tool", calls("wait", {}), answer("I waited."))
    for question, words in PLAIN.items():
        script.say(question, answer(words))
    script.otherwise(answer("I have only a few answers, and this is one of them."))
