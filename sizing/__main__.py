"""For ``spark-submit``, which runs a file: the same command as ``slotferry sizing``.

spark-submit --master spark://host:7077 path/to/sizing/__main__.py run --topom URL --output DIR
"""

import os
import sys

# A script's own folder comes first where Python looks for modules; ours are those of a package and not found there.
if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
    sys.path[0] = os.path.dirname(sys.path[0])

from sizing.command import main

if __name__ == "__main__":
    main()
