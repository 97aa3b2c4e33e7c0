"""Running mean and variance, updated in place and published as float32.

rl_games' ``RunningMeanStd`` rebinds its buffers at every update, so that a reader on another stream can see a mean of
one version beside a variance of another. Here the float64 accumulators stay with the learner, and what the policy reads
(``mean`` and ``inv_std``) lives in the published buffer and changes only when a version is published.
State-dict keys (``running_mean``, ``running_var``, ``count``) are rl_games'.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPSILON = 1e-5
CLIP = 5.0


class RunningNormalizer(nn.Module):
    """Normalises ``[..., size]`` to zero mean and unit variance, clipped to +-5 as rl_games does."""

    running_mean: Tensor
    """float64 ``[size]``: mean of every live row seen."""
    running_var: Tensor
    """float64 ``[size]``: biased variance of every live row seen."""
    count: Tensor
    """float64 scalar: rows seen, plus one (rl_games starts at one)."""
    mean: Tensor
    """float32 ``[size]``: the published mean."""
    inv_std: Tensor
    """float32 ``[size]``: the published ``1 / sqrt(var + 1e-5)``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("running_var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.ones((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size), persistent=False)
        self.register_buffer("inv_std", torch.ones(size), persistent=False)
        self.publish()

    def normalize(self, x: Tensor, out: Tensor) -> Tensor:
        """Write the normalised ``x`` into ``out`` (may be ``x`` itself) and return it."""
        torch.sub(x, self.mean, out=out)
        return out.mul_(self.inv_std).clamp_(-CLIP, CLIP)

    def denormalize(self, y: Tensor, out: Tensor) -> Tensor:
        """Write the inverse of :meth:`normalize` into ``out`` (may be ``y`` itself) and return it."""
        torch.clamp(y, -CLIP, CLIP, out=out)
        return out.div_(self.inv_std).add_(self.mean)

    @torch.no_grad()
    def update(self, x: Tensor, weight: Tensor) -> None:
        """Merge the rows of ``x`` ``[B, size]`` whose ``weight`` ``[B]`` is 1; rows of weight 0 may hold anything.

        Moments are taken about the published mean, so that float32 products lose nothing that matters, and summed in
        float64 (parallel merge of Chan et al. 1979).
        """
        centred = torch.where(weight.unsqueeze(-1) > 0, x - self.mean, torch.zeros((), device=x.device))
        rows = weight.sum(dtype=torch.float64)
        safe_rows = rows.clamp(min=1.0)
        shift = centred.sum(0, dtype=torch.float64) / safe_rows
        batch_var = centred.square_().sum(0, dtype=torch.float64) / safe_rows - shift.square()
        delta = self.mean.double() + shift - self.running_mean
        total = self.count + rows
        moment = self.running_var * self.count + batch_var * rows + delta.square() * self.count * rows / total
        self.running_mean.add_(delta * (rows / total))
        self.running_var.copy_(torch.where(rows > 0, moment / total, self.running_var))  # no row: not a bit changes
        self.count.copy_(total)

    @torch.no_grad()
    def publish(self) -> None:
        """Derive the published float32 ``mean`` and ``inv_std`` from the accumulators."""
        self.mean.copy_(self.running_mean)
        self.inv_std.copy_((self.running_var + EPSILON).rsqrt())


class IdentityNormalizer(nn.Module):
    """Stands where normalisation is switched off: same interface, no state, nothing in the checkpoint."""

    def normalize(self, x: Tensor, out: Tensor) -> Tensor:
        """Copy ``x`` into ``out`` unless they are the same tensor."""
        return out if out is x else out.copy_(x)

    def denormalize(self, y: Tensor, out: Tensor) -> Tensor:
        """Copy ``y`` into ``out`` unless they are the same tensor."""
        return out if out is y else out.copy_(y)

    def update(self, x: Tensor, weight: Tensor) -> None:
        """Nothing to learn."""

    def publish(self) -> None:
        """Nothing to publish."""
