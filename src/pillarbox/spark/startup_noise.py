"""Starts Spark's JVM without the lines that it prints each time, which mean nothing to a user.

Everything else that the JVM and its Python workers print to stderr is passed on.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import Any

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


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, unless there is one."""
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
