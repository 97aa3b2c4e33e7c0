"""Adam over the one contiguous parameter buffer, with clipping and the non-finite guard folded into its kernel.

One fused launch per step instead of one per parameter. Clipping divides inside the kernel (``grad_scale``) and a
non-finite gradient, or a minibatch without live rows, skips the step there (``found_inf``): no pass over the gradient
and no host decision is needed for either. The saved state is rl_games': one entry per parameter.
"""

from __future__ import annotations

from typing import Any, Dict, List

import torch
from torch import Tensor, nn


class FlatAdam:
    """Fused Adam on ``parameters`` ``[P]``; gradients of ``modules_parameters`` are views of ``grad`` ``[P]``.

    Args:
        parameters: the flat view of all parameters.
        module_parameters: the parameters that are views of it, in order.
        learning_rate: float32 scalar tensor, read at each step.
        max_grad_norm: global norm to clip to; 0 clips nothing (rl_games' ``truncate_grads: False``).
    """

    def __init__(
        self,
        parameters: Tensor,
        module_parameters: List[nn.Parameter],
        learning_rate: Tensor,
        weight_decay: float,
        max_grad_norm: float,
    ) -> None:
        self.grad = torch.zeros_like(parameters)
        self.max_grad_norm = max_grad_norm
        self._module_parameters = module_parameters
        self._flat = nn.Parameter(parameters)
        self._flat.grad = self.grad
        offset = 0
        for parameter in module_parameters:
            size = parameter.numel()
            parameter.grad = self.grad[offset : offset + size].view_as(parameter)
            offset += size
        self._adam = torch.optim.Adam(
            [self._flat],
            lr=learning_rate,
            eps=1e-8,
            weight_decay=weight_decay,
            fused=True,
            capturable=self.grad.is_cuda,
        )
        moments = {name: torch.zeros_like(self.grad) for name in ("exp_avg", "exp_avg_sq")}
        # made now and never again: a captured step goes on with the memory that it was captured with
        self._state = self._adam.state[self._flat] = {"step": self.grad.new_zeros(()), **moments}
        device = parameters.device
        self._adam.grad_scale = torch.ones((), device=device)  # type: ignore[attr-defined]
        self._adam.found_inf = torch.zeros((), device=device)  # type: ignore[attr-defined]
        self.skipped = torch.zeros((), device=device)
        """float32 scalar: steps skipped since it was last zeroed."""

    def zero_grad(self) -> None:
        """Clear the gradient in place: autograd accumulates into the same memory for ever."""
        self.grad.zero_()

    def step(self, live_rows: Tensor) -> Tensor:
        """Clip and step, unless the gradient is not finite or ``live_rows`` (scalar) is 0; return the gradient norm."""
        norm = torch.linalg.vector_norm(self.grad)
        skip = (~torch.isfinite(norm) | (live_rows < 0.5)).float()
        self._adam.found_inf.copy_(skip)  # type: ignore[attr-defined]
        if self.max_grad_norm > 0:
            self._adam.grad_scale.copy_((norm / self.max_grad_norm).clamp(min=1.0))  # type: ignore[attr-defined]
        self._adam.step()
        self.skipped += skip
        return norm

    def state_dict(self) -> Dict[str, Any]:
        """``torch.optim.Adam``'s state as if it had been built on the separate parameters."""
        state = self._adam.state_dict()
        plain = (bool, int, float, tuple, type(None))
        group: Dict[str, Any] = {k: v for k, v in state["param_groups"][0].items() if isinstance(v, plain)}
        group["capturable"] = False  # rl_games builds its Adam on any device
        group["lr"] = float(self._adam.param_groups[0]["lr"])
        group["params"] = list(range(len(self._module_parameters)))
        per_parameter: Dict[int, Any] = {}
        if state["state"]:
            flat = state["state"][0]
            offset = 0
            for i, parameter in enumerate(self._module_parameters):
                part = slice(offset, offset + parameter.numel())
                moments = {k: flat[k][part].view_as(parameter).clone() for k in ("exp_avg", "exp_avg_sq")}
                per_parameter[i] = {"step": flat["step"].clone(), **moments}
                offset += parameter.numel()
        return {"state": per_parameter, "param_groups": [group]}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore moments and step counts; the learning rate is the tensor's owner's to restore."""
        entries = [state["state"][i] for i in sorted(state["state"])]
        for name in ("exp_avg", "exp_avg_sq"):
            parts = [entry[name].reshape(-1) for entry in entries]
            self._state[name].copy_(torch.cat(parts)) if parts else self._state[name].zero_()
        self._state["step"].copy_(torch.as_tensor(entries[0]["step"] if entries else 0.0))
