"""Answer how many machines a number of users takes, by simulating the scheduler on measured times.

Knows no server and computes no token.
"""
