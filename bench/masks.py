"""What a token mask costs where the model obeys it anyway: nano, one stream, greedy.

    python bench/masks.py [--rounds N]

Runs the same answers free and under a grammar of the whole answer, in turns, on one engine. The
grammar is the one of `format`, but its final message is any text, so the tokens are the same ones
and none is forced. Prints the median time per token of both, and of the matcher alone.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from itertools import count

from gptoss_local.chat import RegexFormat, Vocabulary
from gptoss_local.chat.grammar import compile_grammar
from gptoss_local.chat.vocabulary import STOP_TOKENS
from gptoss_local.engine.engine import Engine
from gptoss_local.engine.mask import MaskCompiler
from gptoss_local.engine.protocol import Generate, Tokens
from gptoss_local.llama import Context, ContextParams, Model
from gptoss_local.nano import ensure_gguf
from gptoss_local.settings import load_settings
from gptoss_local.store import read_tokens
from gptoss_local.types import SamplingParams

PROMPT = "<|start|>user<|message|>Count from 1 to 60.<|end|><|start|>assistant"


def answer(engine: Engine, request: Generate) -> tuple[list[int], list[float]]:
    """The tokens, and the milliseconds of each step that brought one token."""
    tokens: list[int] = []
    step_ms: list[float] = []
    engine.add_request(request)
    while engine.has_work:
        start_ns = time.perf_counter_ns()
        events = engine.step()
        elapsed_ms = (time.perf_counter_ns() - start_ns) / 1e6
        new = [t for e in events if isinstance(e, Tokens) for t in e.tokens]
        if tokens and len(new) == 1:  # neither the prefill nor forced tokens
            step_ms.append(elapsed_ms)
        tokens += new
    return tokens, step_ms


def matcher_us(masks: MaskCompiler, grammar: str, tokens: list[int]) -> Iterator[float]:
    mask = masks.compile(grammar).result()
    for token in tokens:
        start_ns = time.perf_counter_ns()
        mask.accept(token)
        mask.accept_forced()
        yield (time.perf_counter_ns() - start_ns) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    n_rounds = parser.parse_args().rounds
    cache_dir = load_settings().cache_dir
    path = ensure_gguf(cache_dir)
    vocabulary = Vocabulary.from_model(read_tokens(path), cache_dir)
    model, masks = Model(path), MaskCompiler(path)
    params = ContextParams(n_ctx=2048, n_threads_prefill=2, n_threads_decode=1)
    engine = Engine(Context(model, params), masks)
    grammar = compile_grammar(RegexFormat("(.|\n)*"))
    start_s = time.perf_counter()
    masks.compile(grammar).result()
    first_s = time.perf_counter() - start_s
    seq_ids, step_ms, answers = count(1), {False: [0.0] * 0, True: [0.0] * 0}, {}
    for _ in range(n_rounds):
        for is_masked in (False, True):
            request = Generate(
                seq_id=next(seq_ids),
                prompt=vocabulary.encoding.encode(PROMPT, allowed_special="all"),
                sampling=SamplingParams(temperature=0),
                stop_tokens=STOP_TOKENS,
                max_tokens=200,
                grammar=grammar if is_masked else None,
            )
            answers[is_masked], new_ms = answer(engine, request)
            step_ms[is_masked] += new_ms
    if answers[False] != answers[True]:
        raise SystemExit("the mask changed the answer")
    free_ms, masked_ms = statistics.median(step_ms[False]), statistics.median(step_ms[True])
    us = sorted(matcher_us(masks, grammar, answers[True]))
    print(f"{len(us)} tokens; the first mask of a process takes {first_s:.2f} s")
    print(f"free {free_ms:.3f} ms, masked {masked_ms:.3f} ms: {masked_ms / free_ms - 1:+.1%}")
    print(f"matcher {statistics.median(us):.1f} us a token, mean {statistics.mean(us):.1f}")
    model.close()


if __name__ == "__main__":
    main()
