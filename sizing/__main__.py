"""For ``spark-submit``, which runs a file: the same command as ``slotferry sizing``.

spark-submit --master spark://host:7077 path/to/sizing/__main__.py run --topom URL --into DIR
"""

import os
import sys

# Python searches a script's own folder for modules first. Ours are found by their package, not in that folder.
if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
    sys.path[0] = os.path.dirname(sys.path[0])

from sizing.command import main

if __name__ == "__main__":
    main()
