"""The program: `dedup-job`, or `python -m dedup_job`."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command on the command line, and exit with its code."""
    # Imports take a second on a busy machine. Until they are done, and the process handles signals, SIGINT
    # ends it without a traceback, as SIGTERM does.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dedup_job import run_and_exit

    run_and_exit.main()


if __name__ == "__main__":
    main()
