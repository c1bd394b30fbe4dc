"""o200k_harmony, the vocabulary of every gpt-oss."""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence

import tiktoken

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.o200k import SPECIAL_TOKENS, SPLIT_REGEX, has_its_ranks
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.harmony.parts import Part, RenderedParts
from gptoss_local.models.nano.ranks import load_ranks

# Characters: 10 ms. A multiple of three, as o200k takes three digits a token.
_MAX_PIECE = 3 * 2**14
_NEAR = 1000  # characters: where a border is looked for first
# Where o200k begins a new word in any case: before a space, and after a letter (apostrophes go
# with the word before them).
_BORDER = re.compile(
    r"(?<=\S) |(?<=[^\W\d_])[\s.,;:!?()\[\]{}<>=+*/\\|&%$#@\"、。，；：！？（）「」]"
    r"|(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]"
)


def split_text(text: str) -> Iterator[str]:
    """Split a text into one or more pieces; tokens stay the same unless a word is cut."""
    begin = 0
    while len(text) - begin > _MAX_PIECE:
        end = _end(text, begin)
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _end(text: str, begin: int) -> int:
    end = begin + _MAX_PIECE
    for start in (max(begin + 1, end - _NEAR), begin + 1):
        borders = [border.start() for border in _BORDER.finditer(text, start, end)]
        if borders:
            return borders[-1]
    return end


START, END, MESSAGE, CHANNEL, CONSTRAIN = 200006, 200007, 200008, 200005, 200003
RETURN, CALL, END_OF_TEXT = 200002, 200012, 199999
MESSAGE_ENDS = (END, RETURN, CALL)
STOP_TOKENS = [RETURN, CALL, END_OF_TEXT]

_TAGS = {
    "<|start|>": START,
    "<|message|>": MESSAGE,
    "<|channel|>": CHANNEL,
    "<|constrain|>": CONSTRAIN,
    "<|end|>": END,
    "<|return|>": RETURN,
    "<|call|>": CALL,
}
_TAG = re.compile("|".join(map(re.escape, _TAGS)))


class Vocabulary:
    """Encodes text as gpt-oss's token ids by tiktoken, without Python's lock."""

    def __init__(self, ranks: list[bytes]) -> None:
        self.encoding = tiktoken.Encoding(
            "o200k_harmony",
            pat_str=SPLIT_REGEX,
            mergeable_ranks={token: rank for rank, token in enumerate(ranks)},
            special_tokens={tag: token for token, tag in SPECIAL_TOKENS.items()},
        )
        self.token_bytes = ranks
        """The bytes of every id below FIRST_SPECIAL; a token may hold a part of a character."""
        self.rendered = RenderedParts(self._render)

    @classmethod
    def from_model(cls, tokens: Sequence[str]) -> "Vocabulary":
        """Check a model's tokens, in id order in GPT-2's spelling; return the one vocabulary.

        Raises ModelLoadError if the tokenizer is another one.
        """
        if not has_its_ranks(tokens):
            raise ModelLoadError(
                "the model's tokenizer is not o200k_harmony, the one of gpt-oss",
                hint="Convert the original checkpoint again: "
                "gptoss convert CHECKPOINT_DIR OUT.gguf",
            )
        return load_vocabulary()

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of any id; a special token is its tag spelled out."""
        return self.encoding.decode_single_token_bytes(token)

    def text_of(self, tokens: Iterable[int]) -> str:
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", "replace")

    def encode(self, text: str, budget: TokenBudget | None = None) -> list[int]:
        """Encode text in which nothing stands for a tag. Raises PromptTooLongError."""
        tokens: list[int] = []
        for piece in split_text(text):
            encoded = self.encoding.encode_ordinary(piece)
            if budget is not None:
                budget.spend(len(encoded))
            tokens += encoded
        return tokens

    def encode_tagged(self, text: str, budget: TokenBudget | None = None) -> list[int]:
        """Encode text in which harmony's tags stand for their tokens. Raises PromptTooLongError."""
        tokens: list[int] = []
        begin = 0
        for tag in _TAG.finditer(text):
            tokens += [*self.encode(text[begin : tag.start()], budget), _TAGS[tag[0]]]
            if budget is not None:
                budget.spend(1)
            begin = tag.end()
        return tokens + self.encode(text[begin:], budget)

    def _render(self, part: Part, budget: TokenBudget) -> list[int]:
        """Source: `Render<Message>` in openai-harmony's encoding.rs."""
        tokens = [START, *self.encode(part.name or part.role)]
        if part.recipient:
            tokens += self.encode(f" to={part.recipient}")
        if part.channel:
            tokens += [CHANNEL, *self.encode(part.channel)]
        if part.content_type:
            tokens += self.encode_tagged(f" {part.content_type}")
        is_call = part.role == "assistant" and part.recipient
        tokens.append(MESSAGE)
        budget.spend(len(tokens) + 1)
        return [*tokens, *self.encode(part.text, budget), CALL if is_call else END]


@functools.cache
def load_vocabulary() -> Vocabulary:
    """Load o200k_harmony from the ranks that come with the package; takes a moment."""
    return Vocabulary(load_ranks())
