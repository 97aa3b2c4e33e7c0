"""The rule of import order, checked once, when the package is imported."""

import sys

if "torch" in sys.modules:
    raise ImportError("PyTorch was imported before isaacgym modules.  Please import torch after isaacgym modules.")
