"""Reads from replicas: which replica is fit, and which one is read for which slot (**caught-up**)."""
