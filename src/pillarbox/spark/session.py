"""Creates Spark sessions with Pillarbox's defaults and the data source registered.

Settings of the caller always take precedence. Each default has its reason next to it.
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
    # Spark's progress bars would be drawn over ours.
    "spark.ui.showConsoleProgress": "false",
}
#: Settings for Python workers that run on this machine, with Pillarbox installed.
WORKER_DEFAULTS: dict[str, str] = {
    # Fork workers from a process that has already imported the data source.
    "spark.python.daemon.module": OUR_DAEMON,
    # Unix domain sockets need half the work of TCP on loopback.
    "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
}
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
#: Settings that a JVM is started with.
JVM_DEFAULTS: dict[str, str] = {
    # Spark already checks bounds and nulls before it reads a value; without these options, Arrow
    # checks them again for each value.
    "spark.driver.extraJavaOptions": _ARROW,
    "spark.executor.extraJavaOptions": _ARROW,
}
#: Packages that PySpark needs for Spark Connect but does not depend on.
_CONNECT = ("grpc", "grpc_status", "pandas", "zstandard")
#: Settings for a cluster.
CLUSTER_DEFAULTS: dict[str, str] = {
    # Spark's default of 200 is for one large job, not for many small batches.
    "spark.sql.shuffle.partitions": "16",
}
#: Settings for a session on this machine only.
LOCAL_DEFAULTS: dict[str, str] = {
    # The web UI costs start-up time and memory.
    "spark.ui.enabled": "false",
    # 200 tasks for each shuffle would cost more than a micro-batch itself.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    # Spark's default runs `chmod` for each of the two files that a batch adds to its checkpoint,
    # which takes longer than the rest of a small batch. Both rename atomically on local disks.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # Spark must start even if the host name does not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

#: Lines of the JVM that are useless to users.
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
    url = master or "local[*]"
    local = url.startswith("local")
    settings = DEFAULTS | (LOCAL_DEFAULTS if local else CLUSTER_DEFAULTS)
    connect = is_connect(url)
    if not connect:
        find_java()
        settings |= JVM_DEFAULTS
        if choose_python(local=local):
            settings |= worker_settings(url)
    else:
        _check_connect()
        # Other settings are fixed when the server starts.
        settings = {key: value for key, value in settings.items() if key.startswith("spark.sql.")}
    settings |= conf or {}
    with extra("spark", "a pipeline"):
        from pyspark.sql import SparkSession  # noqa: PLC0415 - behind an extra
    if not connect:
        _start_jvm({"spark.app.name": app_name, "spark.master": url} | settings)
    builder: Any = SparkSession.builder.appName(app_name)
    builder = builder.remote(url) if connect else builder.master(url)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def worker_settings(master: str) -> dict[str, str]:
    """Return the worker settings if Pillarbox is installed for the workers' Python.

    Otherwise none: if Spark can't start the daemon, no Python worker can start.
    """
    return WORKER_DEFAULTS if is_local(master) and is_installed() else {}


def register(spark: Any) -> None:
    """Register `format("pillarbox")` with a session."""
    if not _found_by_spark(spark):
        from pillarbox.spark.source import PillarboxSource  # noqa: PLC0415 - behind an extra

        ship(spark, [OWN])
        spark.dataSource.register(PillarboxSource)


def _found_by_spark(spark: Any) -> bool:
    """Return whether Spark has found the source by itself, for local workers.

    It looks once for a session, in a Python process that may be killed or too slow to start. On
    a cluster, it would find the source with the driver's Python, but not with the executors'.
    """
    if is_remote(spark) or not is_local(spark.sparkContext.master):
        return False
    if not runs_our_python(spark.sparkContext):
        return False
    state = spark._jsparkSession.sessionState()
    return bool(state.dataSourceManager().dataSourceExists("pillarbox"))


def _check_connect() -> None:
    """Raise if a package is missing: PySpark would exit the process with status 0."""
    missing = [name for name in _CONNECT if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"Spark Connect needs {missing[0]}; install it with: pip install 'pyspark[connect]'"
        )


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, unless it is running, and filter noise from its stderr.

    Everything else that the JVM and its Python workers print to stderr is passed on.
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
