"""The names of Slotferry's own keys. This module imports nothing, so that any other can use it."""

RESERVED = b"__slotferry:"
"""The prefix of Slotferry's own keys: they belong to no slot, are not moved and not shown to clients."""

REFUSAL = "ERR keys whose names begin with __slotferry: are Slotferry's own"
"""The error for a client that names such a key."""
