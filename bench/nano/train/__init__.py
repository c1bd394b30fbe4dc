"""Train nano on one GPU in under twenty minutes: `python -m bench.nano.train --out DIR`.

`rows` turns documents into training rows in worker processes, `model` is gpt-oss in plain PyTorch,
`loss` the softmax over a vocabulary of which most rows are codes, `checkpoint` what is written.
"""
