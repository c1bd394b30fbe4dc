"""Masks in the running engine: valid answers, the right distribution, undisturbed neighbours."""

import re
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Model, Sampler
from gptoss_local.engine.protocol import Failed
from gptoss_local.engine.worker.sampling import mask as mask_module
from gptoss_local.engine.worker.sampling.draw import draw
from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from gptoss_local.engine.worker.sequence import Sequence
from gptoss_local.harmony import Vocabulary
from gptoss_local.harmony.vocabulary import RETURN
from tests.engine.run import GREEDY, Prompt, make_context, request, running

HELLO = "hello"
FREE = "start: TEXT <|return|>\nTEXT: /(.|\\n)*/"
EXTRACT = "Return JSON with the keys name and age: Bob Smith is 42 years old."
ON_BOTH = pytest.mark.parametrize("backend_sampling", [False, True])


def matching(regex: str) -> str:
    return f"start: BODY <|return|>\nBODY: /{regex}/"


OBEYED = matching(r'\{"name": "[A-Za-z ]+", "age": [0-9]+\}')


def text_of(vocabulary: Vocabulary, tokens: list[int]) -> str:
    return b"".join(vocabulary.token_bytes[t] for t in tokens if t != RETURN).decode()


@ON_BOTH
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=3)], ids=str)
def test_an_obeyed_mask_changes_nothing(
    model: Model,
    masks: MaskCompiler,
    prompt: Prompt,
    vocabulary: Vocabulary,
    sampling: SamplingParams,
    backend_sampling: bool,
) -> None:
    with running(model, masks, backend_sampling=backend_sampling) as run:
        for i, grammar in enumerate((None, OBEYED, FREE)):
            run.add(i, prompt(EXTRACT), sampling, grammar=grammar)
        run.finish()
        assert run.tokens[0][-1] == RETURN
        assert run.tokens[1] == run.tokens[2] == run.tokens[0]
        assert text_of(vocabulary, run.tokens[1]) == '{"name": "Bob Smith", "age": 42}'


def test_a_violated_mask_is_enforced_alike_on_device_and_cpu(
    model: Model, masks: MaskCompiler, prompt: Prompt, vocabulary: Vocabulary
) -> None:
    """Greedy, with a plain stream before and after in the same slot."""
    outcome = []
    for backend_sampling in (False, True):
        with running(model, masks, n_seq=1, backend_sampling=backend_sampling) as run:
            run.add(0, prompt(HELLO))
            run.add(1, prompt(HELLO), grammar=matching("[a-c]{3}-[0-9]{2}"))
            run.add(2, prompt(HELLO))
            outcome.append(run.finish())
            assert run.tokens[0] == run.tokens[2]
    assert outcome[0] == outcome[1]
    assert re.fullmatch("[a-c]{3}-[0-9]{2}", text_of(vocabulary, outcome[0][1]))


@pytest.mark.parametrize("temperature", [3.0, 4.0])
def test_the_distribution_is_the_masked_one(
    model: Model, masks: MaskCompiler, prompt: Prompt, temperature: float
) -> None:
    """Chi-square of the draws against the softmax of the allowed logits.

    Here nano's distribution is flat at these temperatures: a good part of the draws is allowed at
    once, and a good part is not.
    """
    grammar, n = matching("Sorry|Why|I|Thank|Hello|The|This"), 2000
    context, tokens = make_context(model, n_ctx=256), prompt("Tell me")
    context.decode(tokens, position=0)
    sampling = SamplingParams(temperature=temperature, seed=1)
    sequence = Sequence(request(0, tokens, sampling), 0, Sampler(sampling))
    drawn, n_rejected = Counter[int](), 0
    for _ in range(n):
        mask = masks.compile(grammar).result()
        sequence.mask = mask
        drawn[draw(sequence, context, -1)[0]] += 1
        n_rejected += mask.n_rejected
    allowed = masks.compile(grammar).result().allowed()
    logits = context.logits(-1).astype(np.float64)[allowed] / temperature
    expected = n * np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    sequence.sampler.close()
    assert n // 20 < n_rejected < n - n // 20
    likely = expected > 5
    counts = np.array([drawn[int(t)] for t in allowed])
    chi_square = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    assert likely.sum() >= 5
    assert chi_square < likely.sum() + 5 * np.sqrt(2 * likely.sum())


def test_forced_tokens_take_one_step(
    model: Model, masks: MaskCompiler, prompt: Prompt, vocabulary: Vocabulary
) -> None:
    words = "the old river is near the quiet house and the moon is over the hill"
    with running(model, masks) as run:
        run.add(0, prompt(HELLO), grammar=matching(f"({words}!|[0-3])"))
        run.add(1, prompt(HELLO), grammar=matching(f"1{words}"))
        run.finish()
        assert run.tokens[1] == [*vocabulary.encoding.encode(f"1{words}"), RETURN]
        assert run.engine.stats().n_steps <= 4


@ON_BOTH
def test_ends_of_a_masked_answer(
    model: Model, masks: MaskCompiler, prompt: Prompt, backend_sampling: bool
) -> None:
    """Limits cut forced tokens, too, and a grammar ends without a stop token."""
    forced, long = matching("([1-6] the old river is ){999}"), "The old river is near. " * 35
    with running(model, masks, n_ctx=256, n_seq=1, backend_sampling=backend_sampling) as run:
        for n in (1, 5, 9):
            assert len(run.answer(n, prompt(HELLO), max_tokens=n, grammar=forced)) == n
            assert run.end(n).reason == "length"
        for i, grammar in enumerate((forced, matching("([1-6]-)+x")), 20):
            tokens = prompt(long)
            n_tokens = len(tokens + run.answer(i, tokens, max_tokens=None, grammar=grammar))
            assert (n_tokens, run.end(i).reason) == (257, "length")
        run.answer(30, prompt(HELLO), stop_tokens=[], grammar="start: /[a-c]x/")
        assert run.end(30).reason == "stop"


@pytest.mark.parametrize(
    ("grammar", "patch", "message"),
    [
        ("start: nothing", None, "nothing"),
        (matching("(a"), None, "unclosed"),
        ('{"grammars": 5}', None, "integer `5`"),
        (matching("[0-9]+"), (Mask, "allowed", lambda _: np.array([], np.intp)), ""),
        (FREE, (mask_module, "read_tokens", lambda _: ["\N{EURO SIGN}"]), "vocabulary"),
        (FREE, (mask_module, "read_tokens", lambda _: ["a", "b"]), "vocabulary"),
    ],
)
def test_a_bad_grammar_or_vocabulary_fails_its_request_alone(
    model: Model,
    masks: MaskCompiler,
    nano_gguf: Path,
    prompt: Prompt,
    monkeypatch: pytest.MonkeyPatch,
    grammar: str,
    patch: tuple[object, str, object] | None,
    message: str,
) -> None:
    if patch is not None:
        monkeypatch.setattr(*patch)
    if message == "vocabulary":  # the others need none of their own, which takes a second
        masks = MaskCompiler(nano_gguf)
    with running(model, masks) as run:
        run.add(0, prompt(HELLO))
        run.add(1, prompt(HELLO), grammar=grammar)
        run.finish()
        failed = run.ends[1]
        assert isinstance(failed, Failed)
        assert message in failed.message
        assert run.end(0).reason == "stop"


class SlowCompiler(MaskCompiler):
    """Compiles when it is told to."""

    def __init__(self, model_path: Path) -> None:
        super().__init__(model_path)
        self.may_go = threading.Event()

    def compile(self, grammar: str) -> Future[Mask]:
        self._thread.submit(self.may_go.wait)
        return super().compile(grammar)


def test_streams_run_while_a_grammar_is_compiled(
    model: Model, nano_gguf: Path, prompt: Prompt
) -> None:
    compiler = SlowCompiler(nano_gguf)
    with running(model, compiler) as run:
        run.add(1, prompt(HELLO), grammar=matching("[0-9]"))
        run.add(2, prompt(HELLO), grammar=matching("[0-9]"))
        run.add(0, prompt(HELLO))
        while 0 not in run.ends:
            run.step()
        assert run.engine.stats().n_waiting == 2
        run.cancel(2)
        assert (run.engine.stats().n_waiting, run.end(2).reason) == (1, "cancelled")
        run.step()
        compiler.may_go.set()
        run.finish()
        assert len(run.tokens[1]) == 2
        assert not run.tokens[2]
