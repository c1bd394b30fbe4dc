"""`python -m gptoss_local` is `gptoss`."""

from gptoss_local.cli.main import main

main()
