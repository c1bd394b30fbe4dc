"""gpt-oss checkpoints to GGUF, the file format of llama.cpp.

`convert_checkpoint` reads a folder in the Hugging Face layout (config.json, safetensors,
tokenizer.json) or in OpenAI's own (`original/`) and writes one GGUF file. MXFP4 experts keep every
bit; the other weights become Q8_0, or another type on request. This package does not download, does
not run models, and knows no other architecture.
"""

from convert.pipeline import ConvertOptions, convert_checkpoint, finished_shards, plan_conversion
from convert.plan import ConversionPlan
from convert.tensor_map import DenseType, ExpertType

__all__ = [
    "ConversionPlan",
    "ConvertOptions",
    "DenseType",
    "ExpertType",
    "convert_checkpoint",
    "finished_shards",
    "plan_conversion",
]
