"""The command ``slotferry demo``. Its work is in :mod:`slotferry.demonstration`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from slotferry.output import FAILED, fail, run
from slotferry.signals import until_signal


def demo(
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys", min=100, help="Keys to load, of mixed types and sizes: 200,000 by default, with --skew 50,000."
        ),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Requests a second; 0: as many as possible.")] = 5000,
    pace: Annotated[
        int,
        typer.Option(
            "--pace", min=0, help="The most keys moved a second, so that there is time to watch; 0: full speed."
        ),
    ] = 10_000,
    calm: Annotated[
        float, typer.Option("--calm", min=0, help="Seconds of traffic before and after the rebalance.")
    ] = 5,
    leave: Annotated[
        bool, typer.Option("--exit", help="End after the verdict; otherwise the cluster stays up.")
    ] = False,
    series: Annotated[
        Path | None, typer.Option("--series", metavar="FILE", help="File for the measurements, as JSON.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw the run as an SVG picture.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The proxy's port; 0: any free one.")] = 0,
    sizing: Annotated[
        bool,
        typer.Option("--sizing", help="Then load uneven data, size every key on Spark, and rebalance by bytes."),
    ] = False,
    skew: Annotated[
        bool,
        typer.Option("--skew", help="Instead: ask one group for most, and watch topom move slots by itself."),
    ] = False,
) -> None:
    """Watch a live rebalance under real traffic, on this machine. Nothing is kept.

    Three Redis servers as three groups with all slots on the first two, topom, and a proxy with two workers are
    started. Keys are loaded through the proxy; readers and writers then check every value against what was last
    written, while topom moves a third of the slots to the third group. At the end every key is compared. The exit
    status is 0 only if there was no error and no difference.

    With --skew, all three groups have slots, and clients ask the first group for most. topom, with
    rebalance = "auto", moves slots by itself until no group has more than 1.15 times its share, within three minutes.
    """
    # Imported here: the other commands start faster without the traffic and its modules.
    from redis import RedisError

    from slotferry.demonstration import DemoOptions, demonstrate
    from slotferry.skewed import demonstrate_skew
    from slotferry.traffic.driver import TrafficError
    from slotferry.uneven import why_not

    if sizing and (lacking := why_not()):
        raise fail(lacking)
    if skew and (sizing or series or picture or not rate):
        raise fail("--skew needs a --rate above 0, and goes with none of --sizing, --series and --picture")
    path = series or Path(tempfile.gettempdir()) / "slotferry-demo.json"
    keys = keys or (50_000 if skew else 200_000)
    options = DemoOptions(keys, rate, pace, calm, leave, path, picture, port, sizing)
    try:
        kept = run(until_signal(demonstrate_skew(options) if skew else demonstrate(options)))
    except (TrafficError, RedisError) as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"{error.filename or 'the demo'}: {error.strerror or error}") from None
    if kept is None:
        raise typer.Exit(130)
    raise typer.Exit(0 if kept else FAILED)
