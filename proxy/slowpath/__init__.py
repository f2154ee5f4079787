"""What is rare, in plain Python: a module a family of commands. The engine asks :class:`~proxy.slowpath.dispatch.SlowPath`."""
