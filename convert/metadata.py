"""The scalar keys of a gpt-oss GGUF, from `config.json` and `convert.card`."""

from pathlib import Path

from gguf import GGML_QUANT_VERSION, GGUFWriter, LlamaFileType, RopeScalingType, size_label

from convert.card import read_general
from convert.config import ModelConfig
from convert.layout import ORIGINAL_NAME
from convert.rope import yarn_scale
from convert.tensor_map import ExpertType

ARCH = "gpt-oss"

_FILE_TYPES = {"mxfp4": LlamaFileType.MOSTLY_MXFP4_MOE, "bf16": LlamaFileType.MOSTLY_BF16}


def add_metadata(
    writer: GGUFWriter, config: ModelConfig, folder: Path, experts: ExpertType = "mxfp4"
) -> list[str]:
    """Add all keys but the tokenizer's; return notes on the values left out.

    Name and licence come from the folder's README.md and name, for `original/` from its parent. The
    writer must know all tensors, as the size label counts parameters. Source:
    `TextModel.set_gguf_parameters` in llama.cpp's conversion/base.py, gpt_oss.py.
    """
    notes = _add_general(writer, folder)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    _add_rope(writer, config)
    # The type of most of the file, as in the published GGUFs, with any dense type.
    writer.add_file_type(_FILE_TYPES[experts])
    writer.add_quantization_version(GGML_QUANT_VERSION)
    return notes


def _add_general(writer: GGUFWriter, folder: Path) -> list[str]:
    counts = writer.get_total_parameter_count()
    folder = folder.resolve()
    if folder.name == ORIGINAL_NAME:
        folder = folder.parent
    general, notes = read_general(folder, counts[0])
    general.name = general.name or folder.name
    general.size_label = general.size_label or size_label(*counts)
    writer.add_type("model")
    general.set_gguf_meta_model(writer)
    return notes


def _add_rope(writer: GGUFWriter, config: ModelConfig) -> None:
    rope = config.rope
    writer.add_rope_freq_base(rope.rope_theta)
    if rope.rope_type != "yarn" or rope.original_max_position_embeddings is None:
        return
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope.factor)
    writer.add_rope_scaling_orig_ctx_len(rope.original_max_position_embeddings)
    if rope.attention_factor is not None:
        # The first multiplies YaRN's own factor. The second is written by llama.cpp's converter,
        # and not read by its loader for gpt-oss.
        writer.add_rope_scaling_attn_factors(rope.attention_factor / yarn_scale(rope.factor))
        writer.add_rope_scaling_yarn_attn_factor(rope.attention_factor)
    if rope.beta_fast is not None:
        writer.add_rope_scaling_yarn_beta_fast(rope.beta_fast)
    if rope.beta_slow is not None:
        writer.add_rope_scaling_yarn_beta_slow(rope.beta_slow)
