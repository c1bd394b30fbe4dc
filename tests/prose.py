"""Prose with arithmetic, paths, globs, identifiers and emphasis, and how a reader sees it."""

from hypothesis import strategies as st

Piece = tuple[str, str]
"""A piece of Markdown, and its text on the screen."""


def _same(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Piece]:
    return texts.map(lambda text: (text, text))


_WORDS = st.sampled_from(["and", "so", "costs", "für", "при", "über,", "then;", "it's", "(both)"])
_NAMES = st.sampled_from(["a", "x", "n", "size", "b_2", "__init__", "_private", "class_", "π"])
_NUMBERS = st.one_of(st.integers(0, 10**7).map(str), st.sampled_from(["0.5", "1e-9", "1_000"]))
_OPERANDS = st.one_of(
    _NAMES,
    _NUMBERS,
    st.builds("{}({}, {})".format, _NAMES, _NUMBERS, _NAMES),
    st.builds("({} + {})".format, _NAMES, _NUMBERS),
    st.builds("{}[{}]".format, _NAMES, _NUMBERS),
)
_ARITHMETIC = st.builds(
    "{}{}{}{}{}".format,
    _OPERANDS,
    st.sampled_from(["*", "**", " * ", " ** ", "/", "//", "+", "-", " - ", "%", "=", " != "]),
    _OPERANDS,
    st.sampled_from(["*", " * ", "+", " / ", "==", " == 2**", " - x**"]),
    st.one_of(_OPERANDS, _NUMBERS.map("-{}".format)),
)
_PATHS = st.sampled_from(
    ["**/*.py", "src/**/*.rs", "src/**", "src/*", "*.txt", "test_*.py", "lib*/src*/x", "/etc/*",
     "**/node_modules/**", "a_b_c", "/usr/lib/_x_/y_", r"C:\Users\me\.ssh", r"..\..\lib", "test_*",
     "*args,", "**kwargs", "f(*args, **kwargs)", "char *p", "*/5 * * * *", "/* note */", "10**-6",
     "^.*$", "2*-3", "snake_case_name", "__all__", "~/.config/*"]
)  # fmt: skip
_EMPHASIS = st.sampled_from(
    [("**bold**", "bold"), ("*it*", "it"), ("***both***", "both"), ("**two words**", "two words"),
     ("**Note:**", "Note:"), ("(*aside*)", "(aside)"), ("*so*, **that**.", "so, that."),
     ("**Yes**/**No**", "Yes/No"), ("**重要**です", "重要です"), ("*Wow!*", "Wow!"),
     ("**10**6 and `x**2`", "**10**6 and x**2"), ("**.NET**", ".NET"), ("*a **b** c*", "a b c")]
)  # fmt: skip
_PIECES = st.one_of(_same(_WORDS), _same(_ARITHMETIC), _same(_PATHS), _EMPHASIS)

PROSE = st.lists(_PIECES, max_size=12).map(
    lambda pieces: (
        " ".join(["Text", *(markdown for markdown, _ in pieces)]),
        " ".join(["Text", *(shown for _, shown in pieces)]),
    )
)
"""A line of Markdown, and its text on the screen."""
