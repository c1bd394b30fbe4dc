"""The engine process: `process` is its main loop and `engine` computes one step.

`scheduler` decides who runs, by what steps cost (`costs`); each `sequence` is one generation.
"""
