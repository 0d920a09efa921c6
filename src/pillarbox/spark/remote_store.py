"""Configures access to remote stores from the driver's environment, as their own tools do.

For an object store, the settings are translated for Pillarbox's client, `deltalake` and Spark. For
HDFS, each of them reads the environment itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pillarbox.spark.errors import StorageError
from pillarbox.spark.location import is_remote_store
from pillarbox.spark.shipping import is_remote

Options = Mapping[str, str]

#: For each option of the clients: the setting of Spark, which sends it to its executors, and the
#: environment variables.
_S3 = {
    "aws_access_key_id": ("fs.s3a.access.key", ["AWS_ACCESS_KEY_ID"]),
    "aws_secret_access_key": ("fs.s3a.secret.key", ["AWS_SECRET_ACCESS_KEY"]),
    "aws_session_token": ("fs.s3a.session.token", ["AWS_SESSION_TOKEN"]),
    "aws_region": ("fs.s3a.endpoint.region", ["AWS_REGION", "AWS_DEFAULT_REGION"]),
    "aws_endpoint": ("fs.s3a.endpoint", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
}
#: Amazon's limit: S3 refuses requests if the clocks differ by more.
CLOCKS_APART_SECONDS_MAX = 15 * 60
#: The packages with which Spark can access S3 (`spark.jars.packages`): 20 MB. The AWS SDK bundle
#: that `hadoop-aws` depends on is 690 MB.
_SDK = "2.35.4"
S3_PACKAGES = ",".join(
    ["org.apache.hadoop:hadoop-aws:3.5.0"]
    + [f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "sts")]
)
S3_EXCLUDES = "software.amazon.awssdk:bundle"


def options_of(location: str) -> dict[str, str]:
    """Return the client options for a store, from the environment; {} for a directory."""
    if not location.startswith("s3a://"):
        return {}
    options = {
        option: next(filter(None, map(os.environ.get, variables)), None)
        for option, (_, variables) in _S3.items()
    }
    return {option: value for option, value in options.items() if value is not None}


def delta_options(options: Options) -> dict[str, str]:
    """Return the options for `deltalake`, with conditional writes for commits."""
    if not options:
        return {}
    http = str(is_plain_http(options)).lower()
    return {**options, "aws_conditional_put": "etag", "allow_http": http}


def spark_settings(location: str) -> dict[str, str]:
    """Return the settings for Spark's own file system."""
    options = options_of(location)
    settings = {_S3[option][0]: value for option, value in options.items()}
    if "aws_endpoint" in options:
        settings["fs.s3a.path.style.access"] = "true"
    return settings


def is_plain_http(options: Options) -> bool:
    return options.get("aws_endpoint", "").startswith("http://")


def give_settings(spark: Any, location: str) -> None:
    """Configure a session to access a store. Settings of the session take precedence."""
    if not is_remote_store(location):
        return
    hadoop = {} if is_remote(spark) else spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in spark_settings(location).items():
        current = hadoop.get(name)
        if spark.conf.get(name, None) is None and current in (None, *_DEFAULTS.get(name, ())):
            spark.conf.set(name, value)


#: Hadoop's default values of these settings.
_DEFAULTS = {"fs.s3a.path.style.access": ("false",), "fs.s3a.endpoint": ("",)}


def check_session(spark: Any, location: str) -> None:
    """Raise a StorageError with advice if Spark can't access a store."""
    if not is_remote_store(location) or is_remote(spark):
        return
    jvm, java = spark._jvm, spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(f"{location}/backing")
    try:
        path.getFileSystem(java.sessionState().newHadoopConf()).exists(path)
    except Exception as error:
        text = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise StorageError(f"Spark can't use {location}: {_explained(location, text)}") from error


def _explained(location: str, error: str) -> str:
    if "No FileSystem for scheme" in error or "ClassNotFound" in error or "NoClassDef" in error:
        return (
            "it has no jars for such URLs. For S3, start it with the settings"
            f" spark.jars.packages={S3_PACKAGES} and spark.jars.excludes={S3_EXCLUDES} ({error})"
        )
    if location.startswith("hdfs://"):
        return (
            f"{error}. Pillarbox itself can access it: start Spark with the same HADOOP_CONF_DIR"
            " and HADOOP_USER_NAME"
        )
    return (
        f"{error}. Pillarbox itself can access it: give the session the same credentials and"
        " endpoint (settings spark.hadoop.fs.s3a.*), or none, to use those of the environment"
    )
