"""The engine process: `process` is its main loop and `engine` computes one step.

`scheduler` decides who runs, at the `pace` of prefill, and each `sequence` is one generation.
"""
