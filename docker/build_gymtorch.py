"""Compile Isaac Gym's tensor extension, as its first import would, without importing it: that may need a GPU.

The name, source and flags must be those of `isaacgym/gymtorch.py`, which then finds its build in TORCH_EXTENSIONS_DIR.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(python_folder: str) -> None:
    """Build from `<python_folder>/isaacgym`. Raises what the compiler says."""
    import torch
    from torch.utils import cpp_extension

    major, minor = torch.__version__.split(".")[:2]
    source = Path(python_folder, "isaacgym", "_bindings", "src", "gymtorch", "gymtorch.cpp")
    flags = [f"-DTORCH_MAJOR={major}", f"-DTORCH_MINOR={minor}"]
    cpp_extension.load(name="gymtorch", sources=[str(source)], extra_cflags=flags, verbose=True)


if __name__ == "__main__":
    main(sys.argv[1])
