"""The contract held against a running pipeline: a debugging and testing tool, far too slow for training.

Around each operation every guarded tensor that the operation may not write is copied and compared, and PyTorch
functions are watched for gradients recorded outside the learner.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from isaac_appo.rollout.slab import Slab
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.topology.contract import LEARNER, OPERATIONS, Operation

Handler = Callable[..., Any]
Fields = Dict[str, List[Tensor]]
"""Field name -> its tensors, one of each slab for ``slab.*``."""

_RULES = {
    "batch": "only the learner reads trajectories into batches and makes returns and advantages",
    "weights": "only the learner updates parameters and statistics",
    "snapshots": "only publish writes snapshots",
    "acting": "a worker's weights change only by adopting a snapshot",
}


class ContractError(RuntimeError):
    """An operation broke the contract; the text names the operation, the field and the rule."""


class PipelineGuard:
    """Wraps the operations of a pipeline so that each is held to :data:`OPERATIONS`; ``calls`` counts what passed.

    Operations are run one at a time, whatever the executor, so that a write is blamed on the one that made it.
    ``fields`` are named as in ``Operation.writes``: ``slab.rewards``, ``batch.returns``, ``weights``, ... A field must
    not change unless its name, or the part before the dot, is among an operation's writes.
    """

    def __init__(self, fields: Mapping[str, List[Tensor]]) -> None:
        self.fields = dict(fields)
        self.calls: Dict[str, int] = {}
        self._lock = threading.RLock()

    @classmethod
    def install(cls, pipeline: Pipeline) -> PipelineGuard:
        """Guard all slabs, the batch and every copy of the weights of ``pipeline`` from its next run on."""
        guard, handlers = cls(fields_of(pipeline)), pipeline.handlers
        pipeline.handlers = lambda: guard.wrap(handlers())  # type: ignore[method-assign]
        return guard

    def wrap(self, handlers: Mapping[str, Handler]) -> Dict[str, Handler]:
        """The same operations, guarded. Raises :class:`ContractError` for one that has no contract."""
        unknown = sorted(set(handlers) - set(OPERATIONS))
        if unknown:
            raise ContractError(f"operation {unknown[0]}: it has no contract. Add it to OPERATIONS in contract.py")
        return {name: self._guarded(name, handler) for name, handler in handlers.items()}

    def _guarded(self, name: str, handler: Handler) -> Handler:
        operation = OPERATIONS[name]

        def guarded(*args: Any) -> Any:
            with self._lock:
                before = [(field, part, part.clone()) for field, part in self._parts(operation)]
                with nullcontext() if operation.role == LEARNER else _NoGradients(name, operation.role):
                    result = handler(*args)
                for field, part, old in before:
                    if not _same(part, old):
                        own = f"it may write {', '.join(sorted(operation.writes)) or 'nothing'} only"
                        rule = _RULES.get(field.partition(".")[0], own)
                        raise ContractError(f"operation {name}{args} wrote {field}: {operation.role}: {rule}")
                self.calls[name] = self.calls.get(name, 0) + 1
                return result

        return guarded

    def _parts(self, operation: Operation) -> Iterator[Tuple[str, Tensor]]:
        """What the operation must leave as it is."""
        for field, tensors in self.fields.items():
            free = field in operation.writes or field.partition(".")[0] in operation.writes
            if not free:
                yield from ((field, tensor.detach()) for tensor in tensors)
            elif operation.last_row and field.startswith("slab."):
                yield from ((f"{field} before its last row", tensor.detach()[:-1]) for tensor in tensors)


def fields_of(pipeline: Pipeline) -> Fields:
    """Every tensor of a pipeline that more than one component could reach, by field."""
    fields: Fields = {}
    for worker in pipeline.workers:
        for slab in worker.slabs:
            for name, tensor in slab_fields(slab).items():
                fields.setdefault(name, []).append(tensor)
    batch = vars(pipeline.learner.batch).items()
    fields.update({f"batch.{name}": [value] for name, value in batch if isinstance(value, Tensor)})
    fields["weights"] = [pipeline.learner.policy.bytes]
    fields["snapshots"] = [pipeline.ring.bytes]
    fields["acting"] = [worker.policy.bytes for worker in pipeline.workers]
    return fields


def slab_fields(slab: Slab) -> Dict[str, Tensor]:
    """Tensors of a slab by field, the shape letters left out: ``slab.obs``."""
    return {f"slab.{name.rpartition('_')[0]}": tensor for name, tensor in slab.tensors().items()}


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit: NaN equals itself, and -0.0 is not 0.0."""
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


class _NoGradients(TorchFunctionMode):
    """Refuses results that record a gradient, and any backward pass."""

    def __init__(self, operation: str, role: str) -> None:
        super().__init__()
        self._where = f"operation {operation}"
        self._rule = f"{role}: only the learner computes gradients. Run it under torch.no_grad()"

    def __torch_function__(self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func in (Tensor.backward, torch.autograd.backward, torch.autograd.grad):
            raise ContractError(f"{self._where} ran {func.__name__}: {self._rule}")
        result = func(*args, **(kwargs or {}))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _tensors(result)):
            name = getattr(func, "__name__", func)
            raise ContractError(f"{self._where} made a result of {name} that requires grad: {self._rule}")
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)
