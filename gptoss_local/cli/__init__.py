"""The command line: a file per command. Commands never catch errors; `main` prints them.

PERF: commands import heavy modules when they run, so that `gptoss --help` stays quick.
"""
