"""The Hydra configuration that ships with isaac_appo: plain YAML, one folder per group."""
