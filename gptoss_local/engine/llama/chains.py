"""Manage the sampler chains that a context runs on the device, and choose a batch's.

ggml reuses the memory plan of a graph for graphs of fitting sizes (`ggml_gallocr_needs_realloc`),
whatever their nodes. So what a chain returns is made an output, or its memory would be reused
before it is read, and no plan for chains of one form fits chains of another (`_sign`).
"""

import ctypes
from ctypes import c_void_p
from typing import Any

import llama_cpp
import msgspec

from gptoss_local.base.errors import EngineError
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama.batch import Batch
from gptoss_local.engine.llama.library import ggml

_N_FORMS = 64  # of chains, at most: there are 18
_F32 = 0  # GGML_TYPE_F32, ggml.h
LIKELIEST = SamplingParams(top_k=64)
"""The kind of chains that draw nothing, but keep so many tokens and their logits."""


class Chain(msgspec.Struct, frozen=True):
    """A `llama_sampler` chain that ends with `chain_end`; equal `kind`: equal but for its state."""

    pointer: Any
    kind: SamplingParams

    @property
    def end_address(self) -> int:
        return _address(self._samplers()[-1])

    @property
    def form(self) -> int:
        """Number the kinds of its samplers; chains of one form add the same nodes to a graph."""
        kinds = tuple(_address(sampler.contents.iface) for sampler in self._samplers())
        form = _forms.setdefault(kinds, len(_forms))
        if form >= _N_FORMS:
            raise EngineError("there are too many forms of sampler chains")
        return form

    def _samplers(self) -> list[Any]:
        n = llama_cpp.llama_sampler_chain_n(self.pointer)
        return [llama_cpp.llama_sampler_chain_get(self.pointer, i) for i in range(n)]


class Chains:
    """The chains of one context, by sequence; it owns them."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._by_seq_id: dict[int, Chain] = {}
        self._batch = Batch(0)

    def get(self, seq_id: int) -> Chain | None:
        return self._by_seq_id.get(seq_id)

    def attach(self, seq_id: int, chain: Chain) -> bool:
        """Run `chain` on the device for every output of `seq_id`, and own it if that is possible.

        Slows the next decode as `Context.plan_memory` does.
        """
        if self._handle is None:
            raise EngineError("the context is closed")
        self.detach(seq_id)
        if not llama_cpp.llama_set_sampler(self._handle, seq_id, chain.pointer):
            return False
        self._by_seq_id[seq_id] = chain
        _attached[chain.end_address] = _End(self, seq_id, chain.form)
        return True

    def detach(self, seq_id: int) -> None:
        if chain := self._by_seq_id.pop(seq_id, None):
            llama_cpp.llama_set_sampler(self._handle, seq_id, None)
            _free(chain)

    def expect(self, batch: Batch) -> None:
        self._batch = batch

    def needs(self, seq_id: int, i_row: int) -> bool:
        """Return whether a graph that is built now must draw from row `i_row` of `seq_id`.

        PERF: graphs of prompts have the first row of every chain, needed or not (0.01 ms), like the
        graph with which llama.cpp reserves memory; else it would reserve in most steps.
        """
        n_rows = self._batch.n_outputs_of(seq_id)
        reads_prompt = self._batch.n_tokens > self._batch.n_outputs
        return i_row < (max(1, n_rows) if reads_prompt else n_rows)

    def close(self) -> None:
        while self._by_seq_id:
            _free(self._by_seq_id.popitem()[1])
        self._handle = None


def chain_end() -> Any:
    """Return a sampler that ends a chain; without it llama.cpp copies 1.6 MB a row to the host."""
    return llama_cpp.llama_sampler_init(ctypes.byref(_END), None)


class _End:
    def __init__(self, chains: Chains, seq_id: int, form: int) -> None:
        self.chains, self.seq_id, self.form, self.n_rows = chains, seq_id, form, 0


_attached: dict[int, _End] = {}  # by the address of the chain's end
_forms: dict[tuple[int, ...], int] = {}  # by the addresses of the samplers' interfaces


def _can_run_on_device(sampler: Any, buffer_type: Any, n_outputs_max: int) -> bool:
    return True


def _begin_graph(sampler: Any) -> None:
    if end := _attached.get(_address(sampler)):
        end.n_rows = 0


def _keep_result_alone(sampler: Any, graph_context: Any, graph: Any, data: Any) -> None:
    result = data.contents
    names = ["sampled"] if result.sampled else ["logits", "candidates"]
    if result.sampled:
        result.logits = result.probs = result.candidates = None
    if end := _attached.get(_address(sampler)):
        if end.chains.needs(end.seq_id, end.n_rows):
            for name in names:
                ggml("ggml_set_output", None, c_void_p(getattr(result, name)))
            _sign(graph_context, graph, end.form)
        else:
            for name in names:
                setattr(result, name, None)
        end.n_rows += 1


def _sign(graph_context: Any, graph: Any, form: int) -> None:
    """Add a node whose sizes encode the form of a chain; it is never computed.

    A plan fits if it has room for both sources, `form + 1` and `_N_FORMS - form` numbers, so the
    plan of one form fits no other.
    """
    context = c_void_p(graph_context)
    low, high = (
        c_void_p(ggml("ggml_new_tensor_1d", c_void_p, context, _F32, ctypes.c_int64(n)))
        for n in (form + 1, _N_FORMS - form)
    )
    node = ggml("ggml_concat", c_void_p, context, low, high, 0)
    choice = (c_void_p * 2)(low, node)  # of which the first is computed, where there is nothing to
    ggml("ggml_build_forward_select", c_void_p, c_void_p(graph), choice, 2, 0)


_END = llama_cpp.llama_sampler_i(
    backend_init=llama_cpp.llama_sampler_i_backend_init(_can_run_on_device),
    backend_apply=llama_cpp.llama_sampler_i_backend_apply(_keep_result_alone),
    backend_reset=llama_cpp.llama_sampler_i_backend_reset(_begin_graph),
)


def _free(chain: Chain) -> None:
    del _attached[chain.end_address]
    llama_cpp.llama_sampler_free(chain.pointer)


def _address(sampler: Any) -> int:
    return ctypes.addressof(sampler.contents)
