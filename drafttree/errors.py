"""The one error type that reaches a user as a single line."""

from __future__ import annotations


class UserError(Exception):
    """Bad input from the user: one line that names the place, what was found and what was expected.

    The command line prints it to stderr without a traceback and exits with code 2.
    """

    exit_code = 2

    @classmethod
    def field(cls, source: object, field: str, found: object, expected: str) -> UserError:
        """Error for one field of a file or of an argument: ``source: field: found X, expected Y``."""
        return cls(" ".join(f"{source}: {field}: found {found!r}, expected {expected}".split()))
