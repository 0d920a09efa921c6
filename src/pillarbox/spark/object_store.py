"""Spark and the object store of a pipeline: its settings, and whether it gets there at all."""

from __future__ import annotations

from typing import Any

from pillarbox.spark.errors import StorageError
from pillarbox.spark.shipping import is_remote
from pillarbox.spark.storage import is_object_store, spark_settings

#: What Spark needs to reach S3, for `spark.jars.packages`: 20 MB, where all of Amazon's software
#: that `hadoop-aws` would bring along by itself is 690 MB.
_SDK = "2.35.4"
S3_PACKAGES = ",".join(
    ["org.apache.hadoop:hadoop-aws:3.5.0"]
    + [f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "sts")]
)
S3_EXCLUDES = "software.amazon.awssdk:bundle"


def give_settings(spark: Any, location: str) -> None:
    """Tell a session how to reach a store, as the environment says it; its own settings win."""
    if not is_object_store(location):
        return
    known = {} if is_remote(spark) else spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in spark_settings(location).items():
        own = known.get(name)
        if spark.conf.get(name, None) is None and own in (None, *_DEFAULTS.get(name, ())):
            spark.conf.set(name, value)


#: What Hadoop says of settings that nobody has set.
_DEFAULTS = {"fs.s3a.path.style.access": ("false",), "fs.s3a.endpoint": ("",)}


def check_session(spark: Any, location: str) -> None:
    """Raise a StorageError that says what to do if Spark can't use a store."""
    if not is_object_store(location) or is_remote(spark):
        return
    jvm, java = spark._jvm, spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(f"{location}/backing")
    try:
        path.getFileSystem(java.sessionState().newHadoopConf()).exists(path)
    except Exception as error:
        text = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise StorageError(f"Spark can't use {location}: {_told(text)}") from error


def _told(error: str) -> str:
    if "No FileSystem for scheme" in error or "ClassNotFound" in error or "NoClassDef" in error:
        return (
            "it has no jars for such URLs. For S3 start it with the settings"
            f" spark.jars.packages={S3_PACKAGES} and spark.jars.excludes={S3_EXCLUDES} ({error})"
        )
    return (
        f"{error}. Pillarbox itself can: give the session the same credentials and endpoint"
        " (settings spark.hadoop.fs.s3a.*), or none, and it is given those of the environment"
    )
