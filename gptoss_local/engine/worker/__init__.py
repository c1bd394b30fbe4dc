"""The engine process: `process` is its main loop and `engine` computes one step.

`scheduler` decides who runs, by the cost of steps (`costs`); each `sequence` is one generation.
"""
