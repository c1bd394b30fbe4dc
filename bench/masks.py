"""What a token mask costs where the model obeys it anyway: one stream.

    python bench/masks.py [--model FILE.gguf] [--rounds N]

Runs the same answer free and under a grammar of the whole answer, in turns, on one engine. The
grammar is the one of `format`, but its final message is any text.
The answer is a script: every token is sampled, on the device where there is one, and then replaced,
so that a model of random weights serves as well as a real one. Prints the median time per token of
both, and of the matcher alone.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from speculation import forced  # the bench beside this one

from gptoss_local.chat import RegexFormat, Vocabulary
from gptoss_local.chat.grammar import compile_grammar
from gptoss_local.engine.engine import Engine
from gptoss_local.engine.mask import MaskCompiler
from gptoss_local.engine.protocol import Generate, Tokens
from gptoss_local.llama import Context, ContextParams, Model, has_gpu
from gptoss_local.nano import ensure_gguf
from gptoss_local.settings import load_settings
from gptoss_local.store import read_tokens
from gptoss_local.types import SamplingParams

PROMPT = "<|start|>user<|message|>What do token masks cost?<|end|><|start|>assistant"
TEXT = (Path(__file__).parents[1] / "docs" / "structure.md").read_text()
ANSWER = (
    f"<|channel|>analysis<|message|>{TEXT[:600]}<|end|>"
    f"<|start|>assistant<|channel|>final<|message|>{TEXT[600:1400]}<|return|>"
)


def answer(engine: Engine, request: Generate, script: list[int]) -> list[float]:
    """The milliseconds of each step that brought one token; the mask forces some of the tags."""
    step_ms: list[float] = []
    tokens: list[int] = []
    with forced(script[len(tokens)] for _ in count()):
        engine.add_request(request)
        while engine.has_work:
            start_ns = time.perf_counter_ns()
            events = engine.step()
            elapsed_ms = (time.perf_counter_ns() - start_ns) / 1e6
            new = [t for e in events if isinstance(e, Tokens) for t in e.tokens]
            if tokens and len(new) == 1:  # not the prefill
                step_ms.append(elapsed_ms)
            tokens += new
    if tokens != script:
        raise SystemExit("the mask changed the answer")
    return step_ms


def matcher_us(masks: MaskCompiler, grammar: str, tokens: list[int]) -> Iterator[float]:
    mask = masks.compile(grammar).result()
    for token in tokens:
        start_ns = time.perf_counter_ns()
        mask.accept(token)
        mask.accept_forced()
        yield (time.perf_counter_ns() - start_ns) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF; the embedded nano when not given")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    cache_dir = load_settings().cache_dir
    path = arguments.model or ensure_gguf(cache_dir)
    vocabulary = Vocabulary.from_model(read_tokens(path), cache_dir)
    prompt, script = vocabulary.encode_tagged(PROMPT), vocabulary.encode_tagged(ANSWER)
    model, masks = Model(path), MaskCompiler(path)
    params = ContextParams(n_ctx=2048, n_threads_prefill=2, n_threads_decode=1)
    engine = Engine(Context(model, params), masks, backend_sampling=has_gpu())
    grammar = compile_grammar(RegexFormat("(.|\n)*"))
    start_s = time.perf_counter()
    masks.compile(grammar).result()
    first_s = time.perf_counter() - start_s
    seq_ids, step_ms = count(1), {False: [0.0] * 0, True: [0.0] * 0}
    for _ in range(arguments.rounds):
        for is_masked in (False, True):
            request = Generate(
                seq_id=next(seq_ids),
                prompt=prompt,
                sampling=SamplingParams(),
                stop_tokens=[script[-1]],
                drafts=False,
                grammar=grammar if is_masked else None,
            )
            step_ms[is_masked] += answer(engine, request, script)
    free_ms, masked_ms = statistics.median(step_ms[False]), statistics.median(step_ms[True])
    us = sorted(matcher_us(masks, grammar, script))
    print(f"{len(us)} tokens; the first mask of a process takes {first_s:.2f} s")
    print(f"free {free_ms:.3f} ms, masked {masked_ms:.3f} ms: {masked_ms / free_ms - 1:+.1%}")
    print(f"matcher {statistics.median(us):.1f} us a token, mean {statistics.mean(us):.1f}")
    model.close()


if __name__ == "__main__":
    main()
