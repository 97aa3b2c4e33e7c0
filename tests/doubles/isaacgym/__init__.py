"""A double of NVIDIA Isaac Gym: the part of its API that isaac_appo calls, on MuJoCo C, with its rules enforced.

It exists for tests. Physics is MuJoCo's and not PhysX's, and a force sensor reads MuJoCo's force and torque sensors at
the same place, which is the wrench of the parent and not PhysX's net force. What breaks a rule raises, where the real
package raises, prints an error and returns False, reads freed memory, or crashes.
"""

from isaacgym import gymdeps  # noqa: F401 - refuses to come after torch

__is_double__ = True
