"""Proves that a GGUF of gpt-oss is right; trusts no number of it before it is checked."""

from convert.verify.pipeline import check_headers, verify_model
from convert.verify.report import ClassReport, Report
