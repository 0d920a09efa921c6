"""A Spark session with our defaults, and the data source made known to it.

A setting of the caller's always wins. What each default is for stands beside it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from collections.abc import Mapping
from typing import Any

from pillarbox.extras import extra
from pillarbox.spark.java import find_java
from pillarbox.spark.python import OUR_DAEMON, choose_python, is_installed, runs_our_python
from pillarbox.spark.shipping import OWN, is_connect, is_local, is_remote, ship

#: Settings for any session.
DEFAULTS: dict[str, str] = {
    # Fewer and larger Arrow batches between the JVM and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Times mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Progress bars are ours; Spark's would be drawn over them.
    "spark.ui.showConsoleProgress": "false",
}
#: Settings for Python workers that run on this machine, with Pillarbox installed.
WORKER_DEFAULTS: dict[str, str] = {
    # They are forked from a process that has imported the data source already.
    "spark.python.daemon.module": OUR_DAEMON,
    # Rows come and go by a socket that needs no network: half the work of TCP on loopback.
    "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
}
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
#: Settings that a JVM is started with.
JVM_DEFAULTS: dict[str, str] = {
    # Spark asks where a value begins, ends and whether it is null before it takes it; without
    # these, Arrow asks the same again for each value.
    "spark.driver.extraJavaOptions": _ARROW,
    "spark.executor.extraJavaOptions": _ARROW,
}
#: What PySpark imports for Spark Connect and does not bring along.
_CONNECT = ("grpc", "grpc_status", "pandas", "zstandard")
#: Settings for a cluster.
CLUSTER_DEFAULTS: dict[str, str] = {
    # As above: the 200 of Spark are for one large job, not for many small batches.
    "spark.sql.shuffle.partitions": "16",
}
#: Settings for a session on this machine alone.
LOCAL_DEFAULTS: dict[str, str] = {
    # A web server that nobody asked for costs start-up time and memory.
    "spark.ui.enabled": "false",
    # 200 tasks for each shuffle of a micro-batch would cost more than the batch.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    # Spark's own choice starts a `chmod` for each of the two files that a batch adds to its
    # checkpoint, which takes longer than the rest of a small batch. Both rename atomically here.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # A host name that does not resolve must not keep Spark from starting.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

#: Lines of the JVM that mean nothing to a user.
_NOISE = re.compile(
    rb"WARNING: Using incubator modules"
    rb"|Using Spark's default log4j profile"
    rb"|Setting default log level to"
    rb"|To adjust logging level use"
    rb"|Setting Spark log level to"
    rb"|.* WARN Utils: (?:Your hostname|Set SPARK_LOCAL_IP)"
    rb"|.* WARN NativeCodeLoader: Unable to load native-hadoop"
)
_STDERR = 2


def session(
    master: str | None = None,
    *,
    app_name: str = "pillarbox",
    conf: Mapping[str, str] | None = None,
) -> Any:
    """Create a Spark session with `format("pillarbox")`. Finds Java automatically.

    `master` is `local[*]` (the default), `local-cluster[2,1,1024]`, `spark://host:7077`, or
    `sc://host:15002` for Spark Connect.
    """
    place = master or "local[*]"
    local = place.startswith("local")
    settings = DEFAULTS | (LOCAL_DEFAULTS if local else CLUSTER_DEFAULTS)
    connect = is_connect(place)
    if not connect:
        find_java()
        settings |= JVM_DEFAULTS
        if choose_python(local=local):
            settings |= quick_workers(place)
    else:
        _check_connect()
        # The rest was settled when the server was started.
        settings = {key: value for key, value in settings.items() if key.startswith("spark.sql.")}
    settings |= conf or {}
    with extra("spark", "a pipeline"):
        from pyspark.sql import SparkSession  # noqa: PLC0415 - behind an extra
    if not connect:
        _start_jvm({"spark.app.name": app_name, "spark.master": place} | settings)
    builder: Any = SparkSession.builder.appName(app_name)
    builder = builder.remote(place) if connect else builder.master(place)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def quick_workers(master: str) -> dict[str, str]:
    """Settings for workers where Pillarbox is installed for the Python that they run.

    Nowhere else: if Spark could not start their daemon, nothing of Python would work.
    """
    return WORKER_DEFAULTS if is_local(master) and is_installed() else {}


def register(spark: Any) -> None:
    """Register `format("pillarbox")` with a session."""
    if not _found_by_spark(spark):
        from pillarbox.spark.source import PillarboxSource  # noqa: PLC0415 - behind an extra

        ship(spark, [OWN])
        spark.dataSource.register(PillarboxSource)


def _found_by_spark(spark: Any) -> bool:
    """Whether Spark finds the source without us: on this machine it looks where Python looks.

    On a cluster it would run what it finds with the driver's Python, not with the executors'.
    """
    if is_remote(spark) or not is_local(spark.sparkContext.master):
        return False
    if not runs_our_python(spark.sparkContext):
        return False
    return importlib.util.find_spec("pyspark_pillarbox") is not None


def _check_connect() -> None:
    """Where something is missing, PySpark ends the process, as one that had succeeded."""
    missing = [name for name in _CONNECT if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"Spark Connect needs {missing[0]}; install it with: pip install 'pyspark[connect]'"
        )


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, unless there is one, without the lines it always prints.

    Everything else that it and its Python workers print to stderr is passed on.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - behind an extra
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf().setAll(list(settings.items()))
    read, write = os.pipe()
    threading.Thread(target=_pass_on, args=[read], name="spark-stderr", daemon=True).start()
    try:
        gateway: Any = launch_gateway(conf, {"stderr": write})  # type: ignore[no-untyped-call]
    finally:
        os.close(write)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _pass_on(handle: int) -> None:
    with open(handle, "rb") as lines:
        for line in lines:
            if not _NOISE.match(line):
                os.write(_STDERR, line)
