"""Masks in the running engine: valid answers, undisturbed neighbours, the right distribution."""

import re
from collections import Counter

import llama_cpp
import numpy as np
import numpy.typing as npt
import pytest

from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model, Sampler
from gptoss_local.engine.protocol import Finished, Generate
from gptoss_local.engine.worker.sampling.draw import draw
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.engine.worker.sequence import Sequence
from gptoss_local.harmony import Vocabulary
from gptoss_local.harmony.vocabulary import RETURN
from tests.engine.run import GREEDY, Prompt, Run, running

HELLO = "hello"
FREE = "start: TEXT <|return|>\nTEXT: /(.|\\n)*/"
EXTRACT = "Return JSON with the keys name and age: Bob Smith is 42 years old."
ON_BOTH = pytest.mark.parametrize("backend_sampling", [False, True])


def matching(regex: str) -> str:
    return f"start: BODY <|return|>\nBODY: /{regex}/"


OBEYED = matching(r'\{"name": "[A-Za-z ]+", "age": [0-9]+\}')


def text_of(vocabulary: Vocabulary, tokens: list[int]) -> str:
    return b"".join(vocabulary.token_bytes[t] for t in tokens if t != RETURN).decode()


def reason(run: Run, seq_id: int) -> str:
    end = run.ends[seq_id]
    assert isinstance(end, Finished), end
    return end.reason


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
        run.add(0, prompt(EXTRACT), sampling)
        run.add(1, prompt(EXTRACT), sampling, grammar=OBEYED)
        run.add(2, prompt(EXTRACT), sampling, grammar=FREE)
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


@ON_BOTH
def test_always_valid_at_temperature_1_and_more(
    model: Model,
    masks: MaskCompiler,
    prompt: Prompt,
    vocabulary: Vocabulary,
    backend_sampling: bool,
) -> None:
    kinds = [
        SamplingParams(seed=1),
        SamplingParams(temperature=20.0, seed=2),
        SamplingParams(top_p=0.5, seed=3),
        SamplingParams(top_k=3, min_p=0.2, seed=4),
    ]
    answers = set()
    with running(model, masks, backend_sampling=backend_sampling) as run:
        for i in range(32):
            sampling = kinds[i % 4]
            run.add(
                i,
                prompt(HELLO),
                sampling,
                max_tokens=None,
                grammar=matching("(red|blue|teal){1,5}"),
            )
        run.finish()
        for i in range(32):
            assert reason(run, i) == "stop"
            answer = text_of(vocabulary, run.tokens[i])
            answers.add(answer)
            assert re.fullmatch("(red|blue|teal){1,5}", answer)
    assert len(answers) > 1


@ON_BOTH
def test_masked_and_free_streams_do_not_disturb_each_other(
    model: Model,
    masks: MaskCompiler,
    prompt: Prompt,
    vocabulary: Vocabulary,
    backend_sampling: bool,
) -> None:
    """Each says what it says alone; what it would never say, it says in the right form.

    There several tokens are nearly as likely as each other, and where its cells lie decides.
    """
    dice, person = "([1-6]-)+[a-c]{2}", r'\{"name": "[A-Za-z ]+", "age": [0-9]+\}'
    forced = (matching(dice), matching(person))

    def ask(run: Run, i: int) -> None:
        grammar = (None, FREE, *forced)[i % 4]
        run.add(i, prompt((HELLO, EXTRACT)[i // 4]), SamplingParams(seed=i), grammar=grammar)

    alone: dict[int, list[int]] = {}
    for i in range(8):
        with running(model, masks, n_seq=1, backend_sampling=backend_sampling) as run:
            ask(run, i)
            alone |= run.finish()
    with running(model, masks, backend_sampling=backend_sampling) as run:
        for i in range(8):
            ask(run, i)
        together = run.finish()
    for i in (0, 1, 4, 5, 7):
        assert together[i] == alone[i]
    cut = "([1-6]-)*([1-6]|[a-c]{2})?"  # after 40 tokens
    for i, form in ((2, cut), (3, person), (6, cut)):
        assert re.fullmatch(form, text_of(vocabulary, together[i]))


@ON_BOTH
def test_preempted_masks_go_on_where_they_were(
    model: Model, masks: MaskCompiler, prompt: Prompt, backend_sampling: bool
) -> None:
    grammars = [matching("([1-6]-){60}"), matching("([a-f] ){60}"), None]

    def ask(run: Run) -> None:
        for i, grammar in enumerate(grammars):
            how = SamplingParams(seed=i)
            run.add(i, prompt("Count from 1 to 60."), how, max_tokens=140, grammar=grammar)

    with running(model, masks, backend_sampling=backend_sampling) as run:
        ask(run)
        wanted = run.finish()
    with running(model, masks, n_ctx=256, backend_sampling=backend_sampling) as run:
        ask(run)
        assert run.finish() == wanted
        assert run.engine.stats().n_preempted > 0


@pytest.mark.parametrize("temperature", [3.0, 4.0])
def test_the_distribution_is_the_masked_one(
    model: Model, masks: MaskCompiler, prompt: Prompt, temperature: float
) -> None:
    """Chi-square of what `draw` gives against the softmax of the allowed logits.

    Here nano's distribution is flat at these temperatures: a good part of the draws is allowed at
    once, and a good part is not.
    """
    grammar = matching("Sorry|Why|I|Thank|Hello|The|This")
    n = 2000
    params = ContextParams(n_ctx=256, n_threads_prefill=1, n_threads_decode=1)
    context = Context(model, params)
    tokens = prompt("Tell me")
    context.decode(tokens, position=0)
    sampling = SamplingParams(temperature=temperature, seed=1)
    request = Generate(seq_id=0, prompt=tokens, sampling=sampling, stop_tokens=[])
    sequence = Sequence(request, 0, Sampler(sampling))
    drawn: Counter[int] = Counter()
    n_rejected = 0
    for _ in range(n):
        mask = masks.compile(grammar).result()
        sequence.mask = mask
        drawn[draw(sequence, context, -1)[0]] += 1
        n_rejected += mask.n_rejected
    allowed = masks.compile(grammar).result().allowed()
    logits = last_logits(context)[allowed] / temperature
    expected = n * np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    sequence.sampler.close()
    context.close()
    assert n // 20 < n_rejected < n - n // 20
    likely = expected > 5
    counts = np.array([drawn[int(t)] for t in allowed])
    chi_square = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    assert likely.sum() >= 5
    assert chi_square < likely.sum() + 5 * np.sqrt(2 * likely.sum())


def last_logits(context: Context) -> npt.NDArray[np.float64]:
    logits = llama_cpp.llama_get_logits_ith(context.handle, -1)
    return np.ctypeslib.as_array(logits, (context.n_vocab,)).astype(np.float64)


def test_forced_tokens_take_one_step(
    model: Model, masks: MaskCompiler, prompt: Prompt, vocabulary: Vocabulary
) -> None:
    words = "the old river is near the quiet house and the moon is over the hill"
    with running(model, masks) as run:
        run.add(0, prompt(HELLO), grammar=matching(f"({words}!|[0-3])"))
        run.add(1, prompt(HELLO), grammar=matching(f"1{words}"))
        run.finish()
        assert text_of(vocabulary, run.tokens[1]) == f"1{words}"
        assert run.tokens[1] == [*vocabulary.encoding.encode(f"1{words}"), RETURN]
        assert run.engine.stats().n_steps <= 4


@pytest.mark.parametrize("max_tokens", [1, 5, 9])
def test_a_limit_cuts_forced_tokens_too(
    model: Model, masks: MaskCompiler, prompt: Prompt, max_tokens: int
) -> None:
    with running(model, masks) as run:
        run.add(0, prompt(HELLO), max_tokens=max_tokens, grammar=matching("1the old river " * 9))
        run.finish()
        assert (len(run.tokens[0]), reason(run, 0)) == (max_tokens, "length")


@ON_BOTH
def test_a_full_context_ends_a_masked_answer(
    model: Model, masks: MaskCompiler, prompt: Prompt, backend_sampling: bool
) -> None:
    for grammar in (matching("([1-6] the old river is ){999}"), matching("([1-6]-)+x")):
        with running(model, masks, n_ctx=256, n_seq=1, backend_sampling=backend_sampling) as run:
            tokens = prompt("The old river is near the quiet house. " * 20)
            run.add(0, tokens, max_tokens=None, grammar=grammar)
            run.finish()
            assert (len(tokens) + len(run.tokens[0]), reason(run, 0)) == (257, "length")


def test_an_answer_is_over_where_the_grammar_is(
    model: Model, masks: MaskCompiler, prompt: Prompt
) -> None:
    """Also without a stop token."""
    with running(model, masks) as run:
        run.add(0, prompt(HELLO), max_tokens=None, stop=False, grammar="start: /[a-c]x/")
        run.finish()
        assert reason(run, 0) == "stop"


def test_forced_tokens_keep_the_pace_of_prefill(
    model: Model, masks: MaskCompiler, prompt: Prompt
) -> None:
    """A stream with several tokens to decode is a stream: a prompt beside it comes in chunks."""
    long = prompt("The old river is near the quiet house. " * 200)
    with running(model, masks) as run:
        run.add(0, prompt(HELLO), max_tokens=None, grammar=matching("([1-6] the old river is )+x"))
        while not run.tokens[0]:
            run.step()
        run.add(1, long, max_tokens=1)
        run.step()
        assert 0 < run.engine.stats().n_cells_used < 200
        assert not run.tokens[1]
        run.cancel(0)
        run.finish()
