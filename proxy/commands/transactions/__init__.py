"""MULTI to EXEC, and WATCH."""
