COMMAND_COST: int
KEY_COST: int
MULTI: bytes
EXEC: bytes
