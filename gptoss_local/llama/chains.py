"""The sampler chains that a context runs on the device, and which of them a batch needs."""

import ctypes
from typing import Any

import llama_cpp
import msgspec

from gptoss_local.errors import EngineError
from gptoss_local.llama.batch import Batch
from gptoss_local.types import SamplingParams


class Chain(msgspec.Struct, frozen=True):
    """A `llama_sampler` chain that a context owns; equal `kind` means equal but for its state.

    Its last sampler is `chain_end`.
    """

    pointer: Any
    kind: SamplingParams

    @property
    def end_address(self) -> int:
        n = llama_cpp.llama_sampler_chain_n(self.pointer)
        return _address(llama_cpp.llama_sampler_chain_get(self.pointer, n - 1))


class Chains:
    """The chains of one context, by sequence; it owns them.

    Args:
        handle: Address of the `llama_context`.
    """

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._by_seq_id: dict[int, Chain] = {}
        self._batch = Batch(0)

    def get(self, seq_id: int) -> Chain | None:
        """What the device runs for `seq_id`."""
        return self._by_seq_id.get(seq_id)

    def attach(self, seq_id: int, chain: Chain) -> bool:
        """Run `chain` on the device for every output of `seq_id`, and own it if that is possible.

        The next decode takes as much longer as `Context.reserve`.
        """
        if self._handle is None:
            raise EngineError("the context is closed")
        self.detach(seq_id)
        if not llama_cpp.llama_set_sampler(self._handle, seq_id, chain.pointer):
            return False
        self._by_seq_id[seq_id] = chain
        _attached[chain.end_address] = _End(self, seq_id)
        return True

    def detach(self, seq_id: int) -> None:
        """Let the CPU sample `seq_id` from now on. Costs as much as `attach`."""
        if chain := self._by_seq_id.pop(seq_id, None):
            llama_cpp.llama_set_sampler(self._handle, seq_id, None)
            _free(chain)

    def expect(self, batch: Batch) -> None:
        """Say what will be decoded next."""
        self._batch = batch

    def needs(self, seq_id: int, i_row: int) -> bool:
        """Whether a graph that is built now must draw from row `i_row` of those of `seq_id`.

        A chain that is not needed computes nothing anyway, but its random number is copied to the
        device, which takes 0.01 ms. PERF: graphs of prompts have the first row of every chain all
        the same, so that they have the same nodes, as has the one that llama.cpp reserves memory
        with before it decodes a prompt. With others it would reserve anew, in most steps.
        """
        n_rows = self._batch.n_outputs_of(seq_id)
        reads_prompt = self._batch.n_tokens > self._batch.n_outputs
        return i_row < (max(1, n_rows) if reads_prompt else n_rows)

    def close(self) -> None:
        """Free them all, once the context itself is gone."""
        while self._by_seq_id:
            _free(self._by_seq_id.popitem()[1])
        self._handle = None


def chain_end() -> Any:
    """A sampler for the end of a chain: of what the device has computed, only the token is of use.

    llama.cpp copies all that `llama_sampler_data` holds to the host, which is 1.6 MB a row with
    gpt-oss's vocabulary. On the CPU a chain skips this sampler.
    """
    return llama_cpp.llama_sampler_init(ctypes.byref(_END), None)


class _End:
    """Of an attached chain: whose it is, and how many rows the graph that is built has of it."""

    def __init__(self, chains: Chains, seq_id: int) -> None:
        self.chains, self.seq_id, self.n_rows = chains, seq_id, 0


_attached: dict[int, _End] = {}  # by the address of the chain's end


def _can_run_on_device(sampler: Any, buffer_type: Any, n_outputs_max: int) -> bool:
    return True


def _begin_graph(sampler: Any) -> None:
    if end := _attached.get(_address(sampler)):
        end.n_rows = 0


def _keep_token_alone(sampler: Any, graph_context: Any, graph: Any, data: Any) -> None:
    """Called for each row when a graph is built, not when that runs."""
    data.contents.logits = data.contents.probs = data.contents.candidates = None
    if end := _attached.get(_address(sampler)):
        if not end.chains.needs(end.seq_id, end.n_rows):
            data.contents.sampled = None
        end.n_rows += 1


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
