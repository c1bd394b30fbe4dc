"""What an engine process finds in its environment."""

import msgspec

from gptoss_local.engine.environment import environment
from gptoss_local.engine.protocol import Load

RESIDENT = Load(model_path="20b.gguf", n_ctx=4096, n_threads_prefill=2, n_threads_decode=2)
IN_TURNS = msgspec.structs.replace(
    RESIDENT, tensor_overrides=((r"blk\.0\.ffn_.*_exps", "CPU"),), offload_min_batch=16
)


def test_threads_stay_awake_only_where_they_take_turns_with_a_gpu() -> None:
    without_gpu = msgspec.structs.replace(IN_TURNS, n_gpu_layers=0)

    awake = environment(IN_TURNS)["GOMP_SPINCOUNT"]

    assert int(awake) >= 300_000  # with 30,000 they sleep through the GPU's turn
    assert int(awake) > int(environment(RESIDENT)["GOMP_SPINCOUNT"])
    assert environment(without_gpu)["GOMP_SPINCOUNT"] == environment(RESIDENT)["GOMP_SPINCOUNT"]


def test_a_head_that_is_named_for_one_of_two_gpus_is_no_expert_on_the_host() -> None:
    """So nothing is measured or planned as if experts had to come over."""
    two_gpus = msgspec.structs.replace(RESIDENT, tensor_overrides=((r"^output\.weight$", "CUDA1"),))
    assert IN_TURNS.shares_experts
    assert not two_gpus.shares_experts
    assert not msgspec.structs.replace(IN_TURNS, n_gpu_layers=0).shares_experts


def test_llama_cpp_is_not_asked_for_streams_that_overwrite_what_others_read() -> None:
    assert "GGML_CUDA_GRAPH_OPT" not in environment(RESIDENT) | environment(IN_TURNS)


def test_a_gpu_gets_batches_of_the_planned_size() -> None:
    assert environment(IN_TURNS)["GGML_OP_OFFLOAD_MIN_BATCH"] == "16"
