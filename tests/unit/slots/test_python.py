"""Which modules a process has that one of Slotferry's own starts."""

import subprocess
from pathlib import Path

import slots
from slots.python import PYTHON


def test_a_folder_of_the_same_name_where_the_command_is_given_does_not_win(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    (tmp_path / "slots" / "__init__.py").write_text("")
    asked = [*PYTHON, "-c", "import slots; print(slots.__file__)"]
    said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == slots.__file__
