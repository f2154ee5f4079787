"""``python -m slotferry`` is the same as the command ``slotferry``."""

from slotferry.main import main

if __name__ == "__main__":
    main()
