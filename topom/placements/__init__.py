"""Placement applied to Redis: which servers are there for groups to take, and taking them."""
