"""Import Isaac Gym before torch. This module imports neither, so that a command can call it first."""

from __future__ import annotations

import importlib
import importlib.util
import sys

__all__ = ["IsaacGymUnavailableError", "import_isaacgym"]


class IsaacGymUnavailableError(RuntimeError):
    """Isaac Gym cannot be used in this process; the text says why."""


def import_isaacgym() -> None:
    """Import `isaacgym.gymapi`, if it is not there yet.

    Errors: IsaacGymUnavailableError if it is not installed, does not import, or if torch was imported before it: Isaac
    Gym loads its own CUDA libraries, and refuses to do so after torch.
    """
    if "isaacgym.gymapi" in sys.modules:
        return
    spec = importlib.util.find_spec("isaacgym")
    if spec is None or spec.origin is None:  # a mere folder of that name has no origin
        version = ".".join(map(str, sys.version_info[:3]))
        raise IsaacGymUnavailableError(
            f"Isaac Gym is not installed for {sys.executable} (Python {version}; Isaac Gym runs on 3.6 to 3.8)"
        )
    if "torch" in sys.modules:
        raise IsaacGymUnavailableError(
            "torch was imported before isaacgym, which Isaac Gym refuses; import isaacgym first in this process"
        )
    try:
        importlib.import_module("isaacgym.gymapi")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise IsaacGymUnavailableError(f"isaacgym does not import ({type(error).__name__}: {error})") from error
