"""Prepares a model as it loads: reads ahead, rehearses steps, and tunes."""
