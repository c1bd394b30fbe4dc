"""Proves that a GGUF of gpt-oss is right, by itself or against a checkpoint.

Reads every byte once, writes nothing, and trusts no number of the file before it is checked.
"""

from convert.verify.pipeline import verify_model
from convert.verify.report import ClassReport, Finding, Report, TensorReport

__all__ = ["ClassReport", "Finding", "Report", "TensorReport", "verify_model"]
