"""rl_games 1.6.5 on our environments: the adapter, its registration, and a quiet training run.

Import this module only where rl_games is wanted: it brings in the whole of it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
import warnings
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from isaac_appo.env.vec_env import VecEnv

with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    warnings.simplefilter("ignore")  # about gym's age and torch.jit, at import
    from rl_games.common import env_configurations, vecenv
    from rl_games.common.algo_observer import AlgoObserver
    from rl_games.common.gym_compat import spaces
    from rl_games.common.ivecenv import IVecEnv
    from rl_games.torch_runner import Runner

__all__ = ["AlgoObserver", "EndRun", "RlGamesEnv", "register", "torch_settings_kept", "train"]


class EndRun(Exception):  # noqa: N818 (it is no error)
    """Raised by an observer to end a run early and in order."""


class RlGamesEnv(IVecEnv):
    """One of our environments as rl_games sees IsaacGymEnvs': dictionaries of tensors, old Gym's four values.

    ``step`` returns ``{"obs": [N, O]}``, reward ``[N]``, done ``[N]`` bool and ``{"time_outs": [N] bool}``. They are
    our persistent tensors, which rl_games copies before the next step. rl_games trains on dead rows as on any other.
    """

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self._done = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        self._infos: Dict[str, Tensor] = {}

    def step(self, actions: Tensor) -> Tuple[Dict[str, Tensor], Tensor, Tensor, Dict[str, Tensor]]:
        """Advance all environments."""
        obs, reward, terminated, truncated = self.env.step(actions)
        torch.logical_or(terminated, truncated, out=self._done)
        self._infos["time_outs"] = truncated
        return {"obs": obs}, reward, self._done, self._infos

    def reset(self) -> Dict[str, Tensor]:
        """Start new episodes everywhere."""
        return {"obs": self.env.reset()}

    def get_env_info(self) -> Dict[str, Any]:
        """Spaces. Actions are within +-1, as rl_games clips and as IsaacGymEnvs has it."""
        obs = self.env.spaces["obs"]
        return {
            "observation_space": spaces.Box(obs.low, obs.high, obs.shape, np.float32),
            "action_space": spaces.Box(-1.0, 1.0, self.env.spaces["action"].shape, np.float32),
        }


def register(env_name: str, create: Callable[..., VecEnv]) -> None:
    """Make ``config.env_name: <env_name>`` mean our environments; ``create`` gets ``config.env_config`` as keywords."""
    kind = "ISAAC_APPO_" + env_name
    vecenv.register(kind, lambda config_name, num_actors, **kwargs: RlGamesEnv(create(**kwargs)))
    env_configurations.register(env_name, {"vecenv_type": kind, "env_creator": create})


@contextlib.contextmanager
def torch_settings_kept() -> Iterator[None]:
    """Undo what rl_games' ``Runner`` sets for the whole process: threads, precision, print options, cuDNN."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = flags
        torch.set_printoptions(profile="default")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what rl_games prints, and its deprecation warnings, off the console; to an error the last of it is added."""
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore")
            yield
    except EndRun:
        pass
    except Exception as error:
        tail = printed.getvalue()[-2000:]
        raise RuntimeError(f"rl_games failed: {type(error).__name__}: {error}\nIt had printed:\n{tail}") from error


class _NoWriter:
    """Takes the place of the TensorBoard writer."""

    def add_scalar(self, *args: Any, **kwargs: Any) -> None:
        pass


class _Muted(AlgoObserver):
    """Hands everything on to another observer, after replacing the TensorBoard writer."""

    def __init__(self, inner: AlgoObserver) -> None:
        super().__init__()
        self._inner = inner

    def after_init(self, algo: Any) -> None:
        algo.writer.close()
        algo.writer = _NoWriter()
        self._inner.after_init(algo)

    def process_infos(self, infos: Any, done_indices: Any) -> None:
        self._inner.process_infos(infos, done_indices)

    def after_steps(self) -> None:
        self._inner.after_steps()

    def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:
        self._inner.after_print_stats(frame, epoch_num, total_time)


def train(
    params: Mapping[str, Any],
    env: IVecEnv,
    epochs: int,
    threads: int,
    observer: Optional[AlgoObserver] = None,
    compiled: bool = False,
) -> None:
    """Run rl_games' own ``Runner`` and agent, unchanged, on ``env``, without console, TensorBoard or kept files.

    Args:
        params: the ``params:`` block of an rl_games YAML.
        epochs: updates.
        threads: of torch.
        observer: its ``after_init(algo)`` and ``after_print_stats(frame, epoch, seconds)`` see the run;
            :class:`EndRun` ends it.
        compiled: rl_games' ``torch_compile``, which is on by default there.
    """
    with tempfile.TemporaryDirectory() as folder, torch_settings_kept(), _quiet():
        runner = Runner(_Muted(observer if observer is not None else AlgoObserver()))
        runner.load({"params": _adjusted(params, env, epochs, threads, folder, compiled)})
        runner.params["config"].update(env_info=env.get_env_info(), vec_env=env)  # after load, which copies deeply
        runner.run_train({"train": True, "play": False})


def _adjusted(
    params: Mapping[str, Any], env: Any, epochs: int, threads: int, folder: str, compiled: bool
) -> Dict[str, Any]:
    adjusted = copy.deepcopy(dict(params))
    adjusted.update(torch_threads=threads, load_checkpoint=False)
    adjusted["config"] = {
        **adjusted["config"],
        "num_actors": env.env.num_envs,
        "device": str(env.env.device),
        "max_epochs": epochs,
        "max_frames": -1,
        "torch_compile": compiled,
        "print_stats": False,
        "save_frequency": 0,
        "save_best_after": epochs + 1,
        "train_dir": folder,
        "full_experiment_name": "run",
    }
    return adjusted
