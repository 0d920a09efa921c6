"""`python tools/install.py ARGUMENT...`: `uv pip install` with the settings that pip has.

uv is several times as fast as pip, but does not read pip's configuration. Where this machine
tells pip of a mirror, a certificate or a proxy, uv is told of it as well. What is set for uv
itself (UV_...) comes first.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

# pip's option and uv's variable.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
SECTIONS = ("global", "install", ":env:")  # the later wins
# PySpark comes as source only. Without compression its wheel is built in half the time.
OPTIONS = ["--require-hashes", "--config-setting=--build-option=--compression=stored"]


def variables(listing: str) -> dict[str, str]:
    """The variables for uv that say what `pip config list` says."""
    found: dict[str, str] = {}
    lines = [line.partition("=") for line in listing.splitlines() if "=" in line]
    for section in SECTIONS:
        for key, _, value in lines:
            of, _, option = key.rpartition(".")
            if of == section and option in SETTINGS:
                found[SETTINGS[option]] = _value(option, str(ast.literal_eval(value)))
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip has it; the hashes are pinned
    return {name: value for name, value in found.items() if value}


def _value(option: str, value: str) -> str:
    words = value.split()
    if option == "find-links":  # pip takes folders that don't exist; uv does not
        return ",".join(word for word in words if "://" in word or Path(word).is_dir())
    return " ".join(words)


def main() -> int:
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
    command = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    arguments = sys.argv[1:]
    if "--editable" not in arguments:
        command += OPTIONS
    environment = variables(listing) | dict(os.environ)
    return subprocess.run([*command, *arguments], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
