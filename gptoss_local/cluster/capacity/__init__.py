"""Simulate the scheduler on measured times, to answer how many machines a number of users takes."""
