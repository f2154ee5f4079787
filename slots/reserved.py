"""Names of keys that are Slotferry's own. A module without imports, for who needs to know nothing else."""

RESERVED = b"__slotferry:"
"""Keys whose names begin so are Slotferry's own: they belong to no slot, are not moved and not shown to clients."""

REFUSAL = "ERR keys whose names begin with __slotferry: are Slotferry's own"
"""The error for a client that names one."""
