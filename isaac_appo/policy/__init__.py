"""Actor-critic, normalisers, action sampling and the published policy buffer."""
