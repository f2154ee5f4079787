"""What is rare, in plain Python: a module a family of commands, and the front door that the engine asks."""
