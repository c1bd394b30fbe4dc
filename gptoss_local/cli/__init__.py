"""The command line: a file per command. Commands never catch errors; `main` prints them.

Nothing heavy is imported before a command runs, so that `gptoss --help` stays quick.
"""
