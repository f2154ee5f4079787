"""``python -m slotferry.traffic``: one process of checking traffic."""

import sys

from slotferry.traffic.worker import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
