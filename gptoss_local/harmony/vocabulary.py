"""o200k_harmony, the vocabulary of every gpt-oss, with the tokens that a fine-tune added."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tiktoken

from gptoss_local.base.errors import ModelLoadError, UsageError
from gptoss_local.base.formats.o200k import (
    FIRST_SPECIAL,
    SPECIAL_TOKENS,
    SPLIT_REGEX,
    USER_DEFINED,
    VOCAB_SIZE,
    is_harmony_sized,
    own_tokens,
    renamed_tokens,
    vocabulary_faults,
)
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
_Added = Sequence[tuple[str, int]]


def _longest_first(added: Mapping[str, int]) -> _Added:
    return sorted(added.items(), key=lambda pair: len(pair[0].encode()), reverse=True)


def _cut(text: str, added: _Added) -> Sequence[str | int]:
    """Cut out tokens wherever they are, the longest first; the rest is for BPE.

    Source: `tokenizer_st_partition` in llama.cpp's llama-vocab.cpp.
    """
    parts: list[str | int] = [text]
    for word, token in added:
        if word in text:
            parts = [each for part in parts for each in _cut_one(part, word, token)]
    return parts


def _cut_one(part: str | int, word: str, token: int) -> Iterator[str | int]:
    first, *others = part.split(word) if isinstance(part, str) else (part,)
    yield first
    for other in others:
        yield token
        yield other


class Vocabulary:
    """Encodes text as a model's token ids by tiktoken, without Python's lock."""

    def __init__(
        self,
        encoding: tiktoken.Encoding,
        ranks: list[bytes],
        tokens: Sequence[str] = (),
        types: Sequence[int] = (),
    ) -> None:
        """Take o200k's encoding, and a model's table of tokens if it has its own ones."""
        self.encoding = encoding
        self.token_bytes = ranks
        """The bytes of every id below FIRST_SPECIAL; a token may hold a part of a character."""
        self.own = own_tokens(tokens, types)
        """The bytes of each token that a fine-tune added; none of one that shows no text."""
        self._n_tokens = len(tokens) or VOCAB_SIZE
        self._names = {i: tokens[i] for i in self.own}
        texts = {name: i for i, name in self._names.items() if types[i] == USER_DEFINED and name}
        tags = {name: i for i, name in self._names.items() if name and not self.own[i]}
        self._added, self._tagged = _longest_first(texts), _longest_first(_TAGS | tags | texts)
        self.rendered = RenderedParts(self._render)

    @classmethod
    def from_model(cls, tokens: Sequence[str], types: Sequence[int]) -> "Vocabulary":
        """Take a model's tokens, in id order in GPT-2's spelling, and their `llama_token_type`.

        Raises ModelLoadError if the tokenizer is another one.
        """
        faults = [fault for _, fault in vocabulary_faults(tokens, types)]
        if faults or not is_harmony_sized(tokens):
            why = faults[0] if faults else f"It has {len(tokens):,} tokens."
            raise ModelLoadError(
                f"the model's tokenizer is not o200k_harmony, the one of gpt-oss. {why}",
                hint="Convert the original checkpoint again: "
                "gptoss convert CHECKPOINT_DIR OUT.gguf",
            )
        plain = load_vocabulary()
        if not renamed_tokens(tokens):
            return plain
        return cls(plain.encoding, plain.token_bytes, tokens, types)

    def check(self, tokens: Sequence[int], where: str) -> None:
        """Raise UsageError for a token that the model does not have."""
        if (largest := max(tokens, default=0)) >= self._n_tokens:
            raise UsageError(
                f"{where}: {largest} is not one of the model's {self._n_tokens:,} tokens",
                hint="Send ids that this model answered with, or none.",
            )

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of any id; a special token is its tag spelled out."""
        if token < FIRST_SPECIAL:
            return self.token_bytes[token]
        if token in self.own:
            return self.own[token] or self._names[token].encode()
        return SPECIAL_TOKENS.get(token, f"<|reserved_{token}|>").encode()

    def text_of(self, tokens: Iterable[int]) -> str:
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", "replace")

    def encode(self, text: str, budget: TokenBudget | None = None) -> list[int]:
        """Encode text in which nothing stands for a tag. Raises PromptTooLongError."""
        return self._encode(text, self._added, budget)

    def encode_tagged(self, text: str, budget: TokenBudget | None = None) -> list[int]:
        """Encode text in which tags stand for their tokens. Raises PromptTooLongError."""
        return self._encode(text, self._tagged, budget)

    def _encode(self, text: str, added: _Added, budget: TokenBudget | None) -> list[int]:
        tokens: list[int] = []
        for part in _cut(text, added):
            for piece in split_text(part) if isinstance(part, str) else (part,):
                found = [piece] if isinstance(piece, int) else self.encoding.encode_ordinary(piece)
                if budget is not None:
                    budget.spend(len(found))
                tokens += found
        return tokens

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
    ranks = load_ranks()
    encoding = tiktoken.Encoding(
        "o200k_harmony",
        pat_str=SPLIT_REGEX,
        mergeable_ranks={token: rank for rank, token in enumerate(ranks)},
        special_tokens={tag: token for token, tag in SPECIAL_TOKENS.items()},
    )
    return Vocabulary(encoding, ranks)
