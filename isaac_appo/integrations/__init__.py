"""Other trainers and loggers, each in a module of its own."""
