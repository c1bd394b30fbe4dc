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
        self._batch: Batch | None = None
        self._has_changed = False

    def get(self, seq_id: int) -> Chain | None:
        """What the device runs for `seq_id`."""
        return self._by_seq_id.get(seq_id)

    def attach(self, seq_id: int, chain: Chain) -> bool:
        """Run `chain` on the device for every output of `seq_id`, and own it if that is possible.

        The next two decodes take about 35 and 9 ms longer, as the graph is built anew.
        """
        if self._handle is None:
            raise EngineError("the context is closed")
        self.detach(seq_id)
        if not llama_cpp.llama_set_sampler(self._handle, seq_id, chain.pointer):
            return False
        self._by_seq_id[seq_id] = chain
        _attached[chain.end_address] = (self, seq_id)
        self._has_changed = True
        return True

    def detach(self, seq_id: int) -> None:
        """Let the CPU sample `seq_id` from now on. Costs as much as `attach`."""
        if chain := self._by_seq_id.pop(seq_id, None):
            llama_cpp.llama_set_sampler(self._handle, seq_id, None)
            _free(chain)
            self._has_changed = True

    def expect(self, batch: Batch) -> None:
        """Say what will be decoded next.

        Behind a change it is as if all chains were needed, as llama.cpp reserves memory then.
        """
        self._batch = None if self._has_changed else batch
        self._has_changed = False

    def needs(self, seq_id: int) -> bool:
        """Whether a graph that is built now must draw for `seq_id`."""
        return self._batch is None or self._batch.has_output(seq_id)

    def close(self) -> None:
        """Free them all, once the context itself is gone."""
        while self._by_seq_id:
            _free(self._by_seq_id.popitem()[1])
        self._handle = None


def chain_end() -> Any:
    """A sampler for the end of a chain: of what the device has computed, only the token is of use.

    llama.cpp copies all that `llama_sampler_data` holds to the host, which is 1.6 MB a row with
    gpt-oss's vocabulary. It also builds the chains of all sequences into every graph. That of one
    without an output in the batch computes nothing, but its random number would be copied to the
    device in every step, which takes 0.01 ms. On the CPU a chain skips this sampler.
    """
    return llama_cpp.llama_sampler_init(ctypes.byref(_END), None)


# By the address of a chain's end: whose it is, and of which sequence.
_attached: dict[int, tuple[Chains, int]] = {}


def _can_run_on_device(sampler: Any, buffer_type: Any, n_outputs_max: int) -> bool:
    return True


def _keep_token_alone(sampler: Any, graph_context: Any, graph: Any, data: Any) -> None:
    """Called when a graph is built, not when that runs."""
    data.contents.logits = data.contents.probs = data.contents.candidates = None
    chains, seq_id = _attached.get(_address(sampler), (None, 0))
    if chains is not None and not chains.needs(seq_id):
        data.contents.sampled = None


_END = llama_cpp.llama_sampler_i(
    backend_init=llama_cpp.llama_sampler_i_backend_init(_can_run_on_device),
    backend_apply=llama_cpp.llama_sampler_i_backend_apply(_keep_token_alone),
)


def _free(chain: Chain) -> None:
    del _attached[chain.end_address]
    llama_cpp.llama_sampler_free(chain.pointer)


def _address(sampler: Any) -> int:
    return ctypes.addressof(sampler.contents)
