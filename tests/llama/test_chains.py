"""Which plans of memory ggml takes for which graphs; asked of its own allocator."""

import ctypes
import itertools
from collections.abc import Iterator
from ctypes import c_size_t, c_void_p
from pathlib import Path

import pytest

from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Model, Sampler
from gptoss_local.engine.llama.chains import _N_FORMS, _sign
from gptoss_local.engine.llama.library import ggml
from tests.engine.run import make_context

KINDS = [
    SamplingParams(temperature, top_p, top_k, min_p)
    for temperature, top_p, top_k, min_p in itertools.product(
        (1.0, 0.5), (1.0, 0.9), (0, 100), (0.0, 0.05)
    )
] + [SamplingParams(temperature=0), SamplingParams(top_k=20)]


class InitParams(ctypes.Structure):
    """`ggml_init_params` of ggml.h."""

    _fields_ = (("size", c_size_t), ("buffer", c_void_p), ("no_alloc", ctypes.c_bool))


def graph_of(forms: list[int]) -> c_void_p:
    """A graph of nothing but the signatures of chains of these forms."""
    context = ggml("ggml_init", c_void_p, InitParams(2**20, None, True))
    graph = ggml("ggml_new_graph", c_void_p, c_void_p(context))
    for form in forms:
        _sign(context, graph, form)
    return c_void_p(graph)


@pytest.fixture
def allocator() -> Iterator[c_void_p]:
    """One for two kinds of buffers: it says so where it would have to plan again."""
    kinds = [ggml("ggml_backend_cpu_buffer_type", c_void_p)] * 2
    pointer = c_void_p(ggml("ggml_gallocr_new_n", c_void_p, (c_void_p * 2)(*kinds), 2))
    yield pointer
    ggml("ggml_gallocr_free", None, pointer)


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_a_plan_fits_chains_of_the_same_forms_alone(allocator: c_void_p, n_rows: int) -> None:
    some = [0, 1, 2, 31, _N_FORMS - 1] if n_rows < 3 else [0, 7, _N_FORMS - 1]
    lists = [list(forms) for forms in itertools.product(some, repeat=n_rows)]
    for planned, asked in itertools.product(lists, lists):
        plan = graph_of(planned)
        assert ggml("ggml_gallocr_reserve_n", ctypes.c_bool, allocator, plan, None, None)
        fits = ggml("ggml_gallocr_alloc_graph", ctypes.c_bool, allocator, graph_of(asked))
        assert fits == (planned == asked), (planned, asked)


def test_parameters_do_not_change_the_form(bare_gguf: Path) -> None:
    model = Model(bare_gguf)
    context = make_context(model, n_ctx=256)

    def form_of(params: SamplingParams) -> int:
        sampler = Sampler(params)
        assert sampler.bind(context, 0)
        chain = context.chains.get(0)
        assert chain is not None
        return chain.form

    forms = [form_of(kind) for kind in KINDS]
    assert len(set(forms)) == len(KINDS)
    assert max(forms) < _N_FORMS
    assert form_of(SamplingParams(0.3, 0.8, 90, 0.2)) == form_of(SamplingParams(0.5, 0.9, 70, 0.05))
    assert form_of(SamplingParams(temperature=0)) == forms[-2]
    assert form_of(SamplingParams(temperature=0, top_k=20)) == forms[-2]
    assert form_of(SamplingParams(0.3, 0.8, 40, 0.2)) == forms[-1]
    model.close()
