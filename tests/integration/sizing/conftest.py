"""One Spark for all tests of a process, on two threads of this machine."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sizing.java import find_java_home
from sizing.python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session on ``local[2]``. Without a Java it fails, with the sentence of :class:`sizing.java.JavaNotFound`."""
    from pyspark.sql import SparkSession

    java = find_java_home()
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(java))
        environment.delenv("SPARK_HOME", raising=False)
        environment.setenv("PYSPARK_PYTHON", worker_python())
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers import sizing and slots from where the tests do.
        environment.setenv("PYTHONPATH", os.pathsep.join(part for part in sys.path if part))
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            # Tests are short: a JVM that compiles less is through sooner.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder))
            .config("spark.sql.python.filterPushdown.enabled", "true")
            .getOrCreate()
        )
    # Spark has its environment now. Commands of other tests in this process are to find what they install, not this.
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
