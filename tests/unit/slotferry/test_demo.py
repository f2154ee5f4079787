"""What the demo refuses."""

from pathlib import Path
from typing import Any

import pytest
import typer

from slotferry.demo import demo
from slotferry.output import FAILED


@pytest.mark.parametrize(
    "more", [{"rate": 0}, {"sizing": True}, {"series": Path("series.json")}, {"picture": Path("picture.svg")}]
)
def test_what_does_not_go_with_skew(more: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        demo(skew=True, **more)
    assert ended.value.exit_code == FAILED
    assert "--skew needs a --rate above 0" in capsys.readouterr().err
