"""`python -m isaac_appo <command>` is the same as `isaac-appo <command>`."""

from __future__ import annotations

import sys

from isaac_appo.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
