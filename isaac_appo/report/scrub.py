"""Takes secrets out of what leaves the machine."""

from __future__ import annotations

import re
from typing import Any, Mapping

HIDDEN = "[scrubbed]"

_NAME = re.compile(r"(?i)(api[_-]?key|(^|[_-])keys?$|token|secret|passw|passphrase|credential|netrc)")
_VALUE = re.compile(
    r"""(?x)
    ^[0-9a-fA-F]{32,}$                                              # hexadecimal: W&B's older keys and many others
    | ^(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9]{32,}$   # random letters of both cases and digits
    | ^(sk|pk|rk|gh[a-z]|github_pat|hf|glpat|xox[a-z]|wandb_v\d+|AKIA)[-_]?[A-Za-z0-9_-]{16,}$
    | ^eyJ[\w-]+\.[\w-]+\.[\w-]*$                                   # JSON web token
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | ://[^/\s:@]*:[^/\s@]+@                                        # user:password in an address
    | \b(password|passwd|login)\s+\S+                               # a line of a netrc file
    """
)


def scrub(value: Any, name: str = "") -> Any:
    """A copy of plain containers in which each value whose key or text looks like a secret reads HIDDEN."""
    if isinstance(value, Mapping):
        return {key: scrub(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrub(item, name) for item in value]
    if _NAME.search(name) and value not in ("", None):
        return HIDDEN
    return HIDDEN if isinstance(value, str) and _VALUE.search(value) else value
