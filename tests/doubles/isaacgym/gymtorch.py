"""Isaac Gym's tensors as torch's and back. Neither copies."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from isaacgym import gymapi


def wrap_tensor(gym_tensor: gymapi.Tensor) -> torch.Tensor:
    """The torch view of a tensor that the simulation owns."""
    return gym_tensor.owned


def unwrap_tensor(torch_tensor: torch.Tensor) -> gymapi.Tensor:
    """A description of a torch tensor that does not keep it alive."""
    if not torch_tensor.is_contiguous():
        raise RuntimeError("unwrap_tensor: the tensor is not contiguous")
    found = gymapi.Tensor()
    found.data_address, found.own_data = torch_tensor.data_ptr(), False
    found.device = -1 if torch_tensor.device.type == "cpu" else torch_tensor.device.index
    found.dtype, found.shape = str(torch_tensor.dtype), tuple(torch_tensor.shape)
    found.storage, found.offset = StorageWeakRef(torch_tensor.untyped_storage()), torch_tensor.storage_offset()
    found.torch_dtype = torch_tensor.dtype
    return found


def alive(tensor: gymapi.Tensor) -> bool:
    """Whether the memory is still there."""
    return tensor.owned is not None or not tensor.storage.expired()


def view(tensor: gymapi.Tensor) -> torch.Tensor:
    """The described memory, for a description whose tensor is alive."""
    if tensor.owned is not None:
        return tensor.owned
    storage = torch.UntypedStorage._new_with_weak_ptr(tensor.storage.cdata)
    found = torch.empty(0, dtype=tensor.torch_dtype, device=storage.device)
    return found.set_(storage, tensor.offset, tensor.shape)
