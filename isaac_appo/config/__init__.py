"""The typed configuration: `validate` makes a `RunConfig` from what Hydra composed, or raises one `ConfigError`."""

from isaac_appo.config.errors import ConfigError
from isaac_appo.config.minibatch import fit_minibatch
from isaac_appo.config.schema import PPOConfig, RunConfig
from isaac_appo.config.validate import validate

__all__ = ["ConfigError", "PPOConfig", "RunConfig", "fit_minibatch", "validate"]
