"""moto's S3 server in a process of its own, and what a program needs to find it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import obstore
import polars
import pytest
from obstore.store import from_url

from pillarbox.spark.remote_store import delta_options, options_of
from tests.spark.stores.s3_lossy import lossy
from tests.spark.stores.store import Store
from tools.ivy import UnreachableError
from tools.s3_jars import jars

BUCKET = "pillarbox"
START_SECONDS = 60
#: moto checks the condition of a write and then writes; as on S3, no other write comes between.
_CODE = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import main
put, lock = S3Response.put_object, threading.Lock()
def put_object(self):
    with lock:
        return put(self)
S3Response.put_object = put_object
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class S3(Store):
    """A running server with one bucket."""

    endpoint: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a program that uses it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }

    def url(self, name: str) -> str:
        return f"s3a://{BUCKET}/{name}"

    def need_jars(self) -> None:
        jars_or_skip()

    @contextlib.contextmanager
    def losing(self, place: str, part: str, count: int = 1) -> Iterator[str]:
        with lossy(self.endpoint, part, count) as proxy, pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy)
            yield place

    def rows(self, url: str) -> list[dict[str, Any]]:
        return polars.read_delta(url, storage_options=delta_options(options_of(url))).to_dicts()

    def objects(self, prefix: str = "") -> list[str]:
        options = {"aws_endpoint": self.endpoint, "aws_access_key_id": "testing"}
        options |= {"aws_secret_access_key": "testing", "aws_region": "us-east-1"}
        store = from_url(f"s3://{BUCKET}", config=options, client_options={"allow_http": True})
        return sorted(each["path"] for each in obstore.list(store, prefix or None).collect())


@contextlib.contextmanager
def running(**variables: str) -> Iterator[S3]:
    """A server with an empty bucket, while this lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | variables,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                _put(f"{endpoint}/{BUCKET}")
                break
            except OSError:
                assert time.monotonic() < deadline, "moto's server does not come up"
                time.sleep(0.05)
        yield S3(endpoint)
    finally:
        process.kill()
        process.wait()


def _put(url: str) -> None:
    signed = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"
    headers = {"Authorization": signed, "Content-Length": "0"}
    request = urllib.request.Request(url, method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()


def jars_or_skip() -> str:
    """The jars that Spark needs, as its setting `spark.jars` has them."""
    try:
        return ",".join(map(str, jars()))
    except UnreachableError as error:
        pytest.skip(str(error).splitlines()[0])
