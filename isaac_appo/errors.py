"""What a person can mend: such an error's text is the whole answer, without a traceback."""

from __future__ import annotations


class UserError(RuntimeError):
    """Base of all errors that a command answers with their text and `exit_code`."""

    exit_code = 2
