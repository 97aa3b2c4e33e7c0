from __future__ import annotations

import torch

from isaac_appo.rollout.slab import Slab


def test_episodes_that_ended_and_those_of_them_that_the_time_limit_cut() -> None:
    slab = Slab(3, 2, 1, 1, torch.device("cpu"))
    for t, env, total, length, cut in ((0, 1, 2.0, 4, True), (1, 0, 1.0, 3, False), (2, 1, 0.5, 2, True)):
        slab.episode_return_TN[t, env], slab.episode_length_TN[t, env] = total, length
        slab.truncated_TN[t, env], slab.terminated_TN[t, env] = cut, not cut
    slab.truncated_TN[0, 0] = True  # a broken row ends no episode that counts
    assert slab.finished_episodes() == [(2.0, 4), (1.0, 3), (0.5, 2)]
    assert slab.truncated_episodes() == 2
