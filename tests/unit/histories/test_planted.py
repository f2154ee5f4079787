"""What is planted is there: each fault replaces something that Slotferry has under that name."""

import subprocess
import sys

PLANT = """
from tests.histories.planted import PLANTED
for _, plant in PLANTED.values():
    plant()
"""


def test_every_fault_can_be_planted() -> None:
    subprocess.run([sys.executable, "-c", PLANT], check=True, timeout=60)
