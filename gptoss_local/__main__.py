"""`gptoss`, also as `python -m gptoss_local`, with a quick way for completion."""

import sys


def main() -> None:
    try:
        _run()
    except KeyboardInterrupt:  # while it imports, or ends
        sys.exit(130)


def _run() -> None:
    if sys.argv[1:2] == ["__complete"]:
        from gptoss_local.cli.completion import print_candidates

        print_candidates(sys.argv[2:])
        return
    from gptoss_local.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
