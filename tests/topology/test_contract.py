from __future__ import annotations

import torch

from isaac_appo.rollout.slab import Slab
from isaac_appo.topology.contract import LEARNER, OPERATIONS, POLICY, ROLLOUT
from isaac_appo.topology.guard import fields_of, slab_fields
from tests.helpers import cartpole_pipeline


def test_the_operations_are_those_of_the_pipeline() -> None:
    pipeline = cartpole_pipeline()
    assert set(OPERATIONS) == set(pipeline.handlers())
    known = {*fields_of(pipeline), "slab.states", "slab.final"}  # not every env has these two
    for operation in OPERATIONS.values():
        assert {name for name in operation.writes if name != "batch"} <= known
    for worker in pipeline.workers:
        worker.env.close()


def test_every_field_of_a_slab_has_one_writer_of_rows() -> None:
    fields = set(slab_fields(Slab(2, 1, 1, 1, torch.device("meta"), num_states=1, num_final=1)))
    act, step = OPERATIONS["act"].writes, OPERATIONS["step"].writes
    assert act | step == fields and not act & step


def test_roles() -> None:
    roles = {name: operation.role for name, operation in OPERATIONS.items()}
    by_role = {role: {name for name, found in roles.items() if found == role} for role in (POLICY, ROLLOUT, LEARNER)}
    assert by_role[POLICY] == {"begin", "adopt", "pick", "copy", "act", "bootstrap"}
    assert by_role[ROLLOUT] == {"step", "cut"}
    assert len(by_role[LEARNER]) == 8
    for name in by_role[POLICY] | by_role[ROLLOUT]:
        assert not {"weights", "batch", "snapshots"} & OPERATIONS[name].writes
