"""Manage the sampler chains that a context runs on the device, and choose a batch's.

ggml plans the memory of a graph once and uses that plan for later graphs, as long as these have as
many nodes and leafs, of sizes that fit (`ggml_gallocr_needs_realloc` in ggml-alloc.c). It does not
compare which nodes they are, nor how long each must live. So two things are ensured here, where a
chain's part of a graph is built:

- A drawn token is an output of every graph that has its node. llama.cpp flags tokens of the batch's
  own rows alone (`llm_graph_result::set_outputs`); in the worst case that it plans with, these are
  rows of the first sequences (`ubatch_prepare_reserve` in llama-context.cpp). The token of a chain
  that ends with `dist` is a `ggml_cast`, which lists itself among its sources, so the allocator
  frees it as soon as it is computed, unless it is an output. By such a plan, numbers of the next
  chain were written over a token before it was read.
- A plan for chains of some forms never fits chains of other forms: see `_sign`.
"""

import ctypes
from ctypes import c_void_p
from typing import Any

import llama_cpp
import msgspec

from gptoss_local.engine.llama.batch import Batch
from gptoss_local.engine.llama.library import ggml
from gptoss_local.errors import EngineError
from gptoss_local.types import SamplingParams

_N_FORMS = 64  # of chains, at most: there are 17
_F32 = 0  # GGML_TYPE_F32, ggml.h


class Chain(msgspec.Struct, frozen=True):
    """A `llama_sampler` chain that a context owns; equal `kind` means equal but for its state.

    Its last sampler is `chain_end`.
    """

    pointer: Any
    kind: SamplingParams

    @property
    def end_address(self) -> int:
        return _address(self._samplers()[-1])

    @property
    def form(self) -> int:
        """Number the kinds of its samplers; chains of one form add the same nodes to a graph.

        How many tokens a filter keeps may differ, as ggml does compare sizes.
        """
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

        The next decode takes as much longer as after `Context.plan_memory`.
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
        """Let the CPU sample `seq_id` from now on. Costs as much as `attach`."""
        if chain := self._by_seq_id.pop(seq_id, None):
            llama_cpp.llama_set_sampler(self._handle, seq_id, None)
            _free(chain)

    def expect(self, batch: Batch) -> None:
        self._batch = batch

    def needs(self, seq_id: int, i_row: int) -> bool:
        """Return whether a graph that is built now must draw from row `i_row` of `seq_id`.

        A chain that is not needed computes nothing, but its random number is copied to the device,
        which takes 0.01 ms. PERF: graphs of prompts still have the first row of every chain. So
        they have the nodes of the graph with which llama.cpp reserves memory before it decodes a
        prompt; with others it would reserve again, in most steps.
        """
        n_rows = self._batch.n_outputs_of(seq_id)
        reads_prompt = self._batch.n_tokens > self._batch.n_outputs
        return i_row < (max(1, n_rows) if reads_prompt else n_rows)

    def close(self) -> None:
        while self._by_seq_id:
            _free(self._by_seq_id.popitem()[1])
        self._handle = None


def chain_end() -> Any:
    """Return a sampler for the end of a chain, which keeps only the token.

    llama.cpp copies all that `llama_sampler_data` holds to the host, which is 1.6 MB a row with
    gpt-oss's vocabulary. On the CPU a chain skips this sampler.
    """
    return llama_cpp.llama_sampler_init(ctypes.byref(_END), None)


class _End:
    """The end of an attached chain: its owner, and its rows in the graph that is being built."""

    def __init__(self, chains: Chains, seq_id: int, form: int) -> None:
        self.chains, self.seq_id, self.form, self.n_rows = chains, seq_id, form, 0


_attached: dict[int, _End] = {}  # by the address of the chain's end
_forms: dict[tuple[int, ...], int] = {}  # by the addresses of the samplers' interfaces


def _can_run_on_device(sampler: Any, buffer_type: Any, n_outputs_max: int) -> bool:
    return True


def _begin_graph(sampler: Any) -> None:
    if end := _attached.get(_address(sampler)):
        end.n_rows = 0


def _keep_token_alone(sampler: Any, graph_context: Any, graph: Any, data: Any) -> None:
    """Called for each row when a graph is built, not when it runs."""
    data.contents.logits = data.contents.probs = data.contents.candidates = None
    if end := _attached.get(_address(sampler)):
        if end.chains.needs(end.seq_id, end.n_rows):
            ggml("ggml_set_output", None, c_void_p(data.contents.sampled))
            _sign(graph_context, graph, end.form)
        else:
            data.contents.sampled = None
        end.n_rows += 1


def _sign(graph_context: Any, graph: Any, form: int) -> None:
    """Add a node whose sizes encode the form of a chain; it is never computed.

    Its sources have `form + 1` and `_N_FORMS - form` numbers. A plan is used if it has room for
    both, and so the plan of one form has no room for any other.
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
    backend_apply=llama_cpp.llama_sampler_i_backend_apply(_keep_token_alone),
    backend_reset=llama_cpp.llama_sampler_i_backend_reset(_begin_graph),
)


def _free(chain: Chain) -> None:
    del _attached[chain.end_address]
    llama_cpp.llama_sampler_free(chain.pointer)


def _address(sampler: Any) -> int:
    return ctypes.addressof(sampler.contents)
