"""gpt-oss checkpoints to GGUF, the file format of llama.cpp; MXFP4 experts keep every bit."""

from convert.pipeline import ConvertOptions, convert_checkpoint, finished_shards, plan_conversion
from convert.plan import ConversionPlan
from convert.tensor_map import DenseType, ExpertType
