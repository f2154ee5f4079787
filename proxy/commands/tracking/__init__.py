"""CLIENT TRACKING: clients that cache what they have read, and are told when it changes."""
