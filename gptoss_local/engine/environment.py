"""Set what the libraries of an engine process read from its environment when they start."""

from gptoss_local.engine.protocol import Load

# llama.cpp's CPU threads (OpenMP) spin while they wait for each other. As soon as another program
# needs one of the cores, a spinning thread takes the time of the one that all others wait for.
# PERF: nano, 2 threads on 2 cores next to a busy loop: 435 ms a token as it is, 15 ms with this;
# undisturbed 4.5 ms either way. Sleeping immediately (0) costs 11 ms undisturbed. On a later kernel
# next to one such loop 12 ms with 1,000 and 30,000 spins, next to two 17 and, at times, 30.
#
# NOTE: not GGML_CUDA_GRAPH_OPT, though llama-bench is 6 % faster with it. It computes Q, K and V of
# a single token side by side, and ggml's allocator has the rotated K written over the input that
# the others still read: now and then a token is drawn from wrong logits (docs/design/engine.md).
_ALONE = {"GOMP_SPINCOUNT": "1000"}

# Where CPU and GPU take turns in every layer, the threads are not to sleep during the GPU's.
# PERF: H200, 16 cores, 20b, experts of 5 layers in RAM, over HTTP, twice: 10.1 and 11.9 ms a token
# with 30,000 spins, 8.3 and 9.5 with the 300,000 that OpenMP has by itself, 8.3 and 8.4 with
# 3,000,000; they sleep 42, 0.3 and 0.1 times a token.
_IN_TURNS = {"GOMP_SPINCOUNT": "300000"}


def environment(load: Load) -> dict[str, str]:
    """Return the variables for a process with this load; the user's own take precedence.

    GPUs are numbered as the driver does, so that a plan made from its figures names the right one.
    `GGML_OP_OFFLOAD_MIN_BATCH` is read by llama.cpp's CUDA backend.
    """
    takes_turns = load.model.tensor_overrides and load.model.n_gpu_layers != 0
    return (_IN_TURNS if takes_turns and not load.is_quiet else _ALONE) | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GGML_OP_OFFLOAD_MIN_BATCH": str(load.offload_min_batch),
    }
