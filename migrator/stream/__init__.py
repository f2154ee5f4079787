"""Copies slots by the replication stream of their source, while clients stay there."""
