"""Commands that name a database other than the session's: COPY and MOVE, and a transaction that selects one."""
