"""The command line of sizing, as far as it goes without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sizing import access, command, shipping
from sizing.access import TOKEN
from sizing.outcome import JobRequest
from sizing.reading import reason_of
from slotferry import contexts
from slotferry.contexts import Context
from slotferry.main import app
from slots.topomtls import AUTHORITIES, CERTIFICATE, KEY, Files, from_environment

ROOT = Path(__file__).parents[3]
NO_TOPOM = {"SLOTFERRY_TOPOM": "", "SLOTFERRY_TOKEN": ""}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--servers", "h:1", "--rdb", "x"), "--rdb"),
        (("--servers", "h:1", "--sample-fraction", "0"), "--sample-fraction"),
        (("--rdb", "x", "--sample-fraction", "0.5"), "read whole"),
        (("--servers", "h:1", "--separator", ""), "--separator"),
        (("--servers", "h:1", "--conf", "x"), "NAME=VALUE"),
        (("--servers", "h:1", "--option", "=x"), "NAME=VALUE"),
    ],
)
def test_wrong_usage_is_named(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["sizing", "run", "--into", str(tmp_path / "out"), *arguments], env={**NO_TOPOM, "COLUMNS": "300"}
    )

    assert result.exit_code == 2
    assert said in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--servers", "nowhere"), "host:port"),
        (("--servers", "h:1", "--option", "password=secret"), "SLOTFERRY_SIZING_REDIS_USER"),
        (("--servers", "h:1", "--option", "speed=1"), "speed is no option"),
    ],
)
def test_options_of_the_data_source_are_looked_at_before_spark_starts(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = CliRunner().invoke(app, ["sizing", "run", "--into", str(tmp_path), *arguments], env=NO_TOPOM)

    assert result.exit_code == 1
    assert said in result.stderr
    assert "secret" not in result.output


def test_without_servers_it_asks_the_topom_of_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def run(request: JobRequest, *rest: object) -> int:
        given.update(topom=request.topom, token=request.token)
        return 0

    monkeypatch.setattr(command, "_work", run)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    # They are set for the data source, and taken back when the test ends.
    for name in (TOKEN, AUTHORITIES, CERTIFICATE, KEY):
        monkeypatch.setenv(name, "")
    contexts.change(lambda kept: contexts.with_context(kept, "mine", Context("http://mine:1", "secret")))
    sized = ["sizing", "run", "--into", str(tmp_path)]
    for arguments, topom, token in (
        (sized, "http://127.0.0.1:8380", ""),
        (["--context", "mine", *sized], "http://mine:1", "secret"),
        (["--context", "mine", *sized, "--servers", "h:1"], "http://mine:1", "secret"),
        ([*sized, "--topom", "http://other:1"], "http://other:1", ""),
        ([*sized, "--servers", "h:1"], "", ""),
    ):
        result = CliRunner().invoke(app, arguments, env=NO_TOPOM)
        assert (result.exit_code, given) == (0, {"topom": topom, "token": token}), arguments
    # Through spark-submit there are no contexts.
    alone = CliRunner().invoke(command.app, ["run", "--into", str(tmp_path)], env=NO_TOPOM)
    assert (alone.exit_code, "--topom" in alone.output) == (2, True)


def test_what_the_data_source_finds_is_of_the_cluster_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, Files]] = []

    def run(*_: object) -> int:
        found.append((access.token(), from_environment()))
        return 0

    monkeypatch.setattr(command, "_work", run)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in (TOKEN, AUTHORITIES, CERTIFICATE, KEY):
        monkeypatch.setenv(name, "of-another-cluster")
    mutual = Files("/ca", "/crt", "/key")
    contexts.change(lambda kept: contexts.with_context(kept, "mine", Context("https://mine:1", "secret", tls=mutual)))
    contexts.change(lambda kept: contexts.with_context(kept, "bare", Context("https://bare:1")))
    for name in ("mine", "bare"):
        result = CliRunner().invoke(app, ["--context", name, "sizing", "run", "--into", str(tmp_path)])
        assert result.exit_code == 0, result.output
    assert found == [("secret", mutual), ("", Files())]


def test_without_pyspark_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = CliRunner().invoke(app, ["sizing", "run", "--into", str(tmp_path), "--servers", "h:1"], env=NO_TOPOM)

    assert result.exit_code == 1
    assert "pip install 'slotferry[sizing]'" in result.stderr


def test_the_command_line_starts_without_what_only_sizing_needs() -> None:
    heavy = ("pyspark", "pyarrow", "matplotlib")
    code = f"import sys, slotferry.main; print([name for name in {heavy} if name in sys.modules])"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert said.stdout.strip() == "[]"


def test_a_run_goes_on_at_another_pace_and_not_with_other_keys() -> None:
    def of_keys(**source: str) -> dict[str, object]:
        return JobRequest("out", servers="h:1", source=source).of_keys

    assert of_keys(scan_count="100", max_keys_per_second="5") == of_keys()
    assert of_keys(samples="0") != of_keys()
    assert "token" not in repr(JobRequest("out", token="the-token")).replace("token=''", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[PYTHON_EXCEPTION]\nTraceback (most recent call last):\nsizing.errors.ServerFailed: h:1 is gone\n"
            "pyspark.errors.PySparkRuntimeError: something else\n\tat org.apache.spark",
            "h:1 is gone",
        ),
        ("Traceback\nConnectionResetError: reset\n", "reset"),
        ("\nJob aborted due to stage failure\n\tat java", "Job aborted due to stage failure"),
        ("", "RuntimeError"),
    ],
)
def test_the_sentence_is_found_in_what_spark_says(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


def test_what_is_shipped_has_our_settings_named_after_the_archive(tmp_path: Path) -> None:
    options = shipping.options(tmp_path / "slotferry-shipped.zip")

    assert options["spark.archives"].endswith(f"#{options['spark.executorEnv.PYTHONPATH']}")
