"""Runs the main function of a benchmark script as the command line runs a command."""

from __future__ import annotations

import sys
from collections.abc import Callable

from drafttree.errors import UserError


def run_script(name: str, main: Callable[[], None]) -> None:
    """A fault of the user's is one line on stderr and exit code 2; an interruption is exit code 130."""
    try:
        main()
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
