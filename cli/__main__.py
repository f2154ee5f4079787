"""``python -m cli`` is the same as the command ``slotferry``."""

from cli.main import main

if __name__ == "__main__":
    main()
