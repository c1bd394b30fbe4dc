"""Proves that a GGUF of gpt-oss is right, by itself or against a checkpoint.

`verify_model` reads every byte of the file once and lists everything that is wrong. This package
writes nothing, downloads nothing, and trusts no number of the file before it is checked.
"""

from convert.verify.pipeline import verify_model
from convert.verify.report import ClassReport, Finding, Report, TensorReport

__all__ = ["ClassReport", "Finding", "Report", "TensorReport", "verify_model"]
