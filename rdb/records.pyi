NONE: int
MOST_NOTE: int
