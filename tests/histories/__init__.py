"""Histories: what many clients were answered while slots moved and things broke, checked for linearizability."""
