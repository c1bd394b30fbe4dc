"""The environment of an engine process."""

from pathlib import Path

import msgspec
import pytest

from gptoss_local.base.types import ModelParams
from gptoss_local.engine.client import environment
from tests.engine.run import load_of

pytestmark = pytest.mark.quick

ON_HOST = ModelParams(tensor_overrides=((r"blk\.0\.ffn_.*_exps", "CPU"),))
RESIDENT = load_of(Path("20b.gguf"))
IN_TURNS = msgspec.structs.replace(RESIDENT, model=ON_HOST, offload_min_batch=16)


def test_threads_stay_awake_only_where_they_take_turns_with_a_gpu() -> None:
    in_ram = msgspec.structs.replace(ON_HOST, n_gpu_layers=0)
    without_gpu = msgspec.structs.replace(IN_TURNS, model=in_ram)
    quiet = msgspec.structs.replace(IN_TURNS, is_quiet=True)

    awake = environment(IN_TURNS)["GOMP_SPINCOUNT"]

    assert int(awake) >= 300_000  # with 30,000 they sleep through the GPU's turn
    assert int(awake) > int(environment(RESIDENT)["GOMP_SPINCOUNT"])
    assert environment(quiet)["GOMP_SPINCOUNT"] == environment(RESIDENT)["GOMP_SPINCOUNT"]
    assert environment(without_gpu)["GOMP_SPINCOUNT"] == environment(RESIDENT)["GOMP_SPINCOUNT"]


def test_a_head_that_is_named_for_one_of_two_gpus_is_no_expert_on_the_host() -> None:
    """So nothing is measured or planned as if experts had to come over."""
    assert ON_HOST.shares_experts
    assert not ModelParams(tensor_overrides=((r"^output\.weight$", "CUDA1"),)).shares_experts
    assert not msgspec.structs.replace(ON_HOST, n_gpu_layers=0).shares_experts


def test_llama_cpp_does_not_reorder_the_graph() -> None:
    assert "GGML_CUDA_GRAPH_OPT" not in environment(RESIDENT) | environment(IN_TURNS)


def test_a_gpu_gets_batches_of_the_planned_size() -> None:
    assert environment(IN_TURNS)["GGML_OP_OFFLOAD_MIN_BATCH"] == "16"
