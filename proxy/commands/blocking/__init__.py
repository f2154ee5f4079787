"""Commands that wait at a server: BLPOP and its like, XREAD with BLOCK, WAIT, CLIENT UNBLOCK."""
