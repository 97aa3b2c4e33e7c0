"""Who does what, and where it lies: the contract of an asynchronous trainer, its estimates, and the blueprint."""
