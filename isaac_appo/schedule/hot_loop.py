"""The hot-loop law: inside the rollout and minibatch loops nothing waits for, or copies to, the host.

One ``.item()`` per step costs little on a CPU and everything on a GPU, so the law is checked where it can be broken
unnoticed. :func:`guarded` wraps the operations of the inner loops; a violation is an error that names the call and the
operation. A test and debugging tool: each torch call is inspected.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Tuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

HOT_OPERATIONS = ("adopt", "pick", "copy", "act", "step", "bootstrap", "minibatch")
"""Operations that run once per env step or per minibatch."""

_FORBIDDEN_METHODS = frozenset(
    ("cpu", "numpy", "item", "tolist", "nonzero", "argwhere", "__bool__", "__float__", "__int__", "__index__")
)
_FORBIDDEN_KERNELS = frozenset(("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2"))
"""What the methods above, indexing by a mask, ``torch.equal`` or ``unique`` come down to: a wait, or a shape that only
the host can know."""
_INDEXING = frozenset(("index", "index_put", "index_put_", "_index_put_impl_"))


class HotLoopError(RuntimeError):
    """A host synchronisation inside a hot loop."""


class _Methods(TorchFunctionMode):
    """Refuses the tensor methods that hand a value to the host."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation = operation

    def __torch_function__(self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _FORBIDDEN_METHODS:
            raise HotLoopError(_text(f"Tensor.{name}", self.operation))
        return func(*args, **(kwargs or {}))


class _Kernels(TorchDispatchMode):
    """Refuses the kernels that make the host wait, wherever they are called from."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation = operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in _FORBIDDEN_KERNELS or (name in _INDEXING and _by_mask(args[1])):
            raise HotLoopError(_text(f"aten.{name}", self.operation))
        result = func(*args, **(kwargs or {}))
        if name == "_to_copy" and isinstance(args[0], torch.Tensor) and result.device != args[0].device:
            raise HotLoopError(_text(f"a copy from {args[0].device} to {result.device}", self.operation))
        return result


def _by_mask(indices: Any) -> bool:
    """Whether one of the indices is a mask, whose number of true values only the host can wait for."""
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _text(call: str, operation: str) -> str:
    return (
        f"{call} inside operation {operation}: it waits for the device or copies to the host, once per step or "
        "minibatch. Keep the value on the device, and read it once per update at the boundary"
    )


def guarded(handlers: Mapping[str, Callable[..., None]]) -> Dict[str, Callable[..., None]]:
    """The handlers, with those of the hot loops refusing host synchronisation by :class:`HotLoopError`."""
    return {name: _guard(name, handler) if name in HOT_OPERATIONS else handler for name, handler in handlers.items()}


def _guard(name: str, handler: Callable[..., None]) -> Callable[..., None]:
    def watched(*args: int) -> None:
        with _Methods(name), _Kernels(name):
            handler(*args)

    return watched
