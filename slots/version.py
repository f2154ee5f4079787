"""The version of this program, as its processes tell each other and their operators."""

from importlib import metadata

from prometheus_client.core import InfoMetricFamily, Metric


def program_version() -> str:
    """The version as it is installed; 0 if the program runs from its folder and is not installed."""
    try:
        return metadata.version("slotferry")
    except metadata.PackageNotFoundError:
        return "0"


def build_info(prefix: str) -> Metric:
    """A metric that is always 1 and has the version as its label, so that a dashboard can tell versions apart."""
    text = "1; the labels say which version of Slotferry runs."
    return InfoMetricFamily(f"{prefix}_build", text, value={"version": program_version()})
