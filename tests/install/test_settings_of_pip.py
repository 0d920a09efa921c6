"""`tools/install.py`: what this machine tells pip is told to uv."""

from __future__ import annotations

from pathlib import Path

from tools.install import variables


def test_R36_the_settings_of_pip_are_those_of_uv(tmp_path: Path) -> None:
    listing = f"""\
:env:.disable-pip-version-check='1'
:env:.find-links='{tmp_path} {tmp_path}/absent https://mirror.example/wheels'
:env:.index-url='https://mirror.example/from-the-environment'
global.cert='/etc/ssl/ca.pem'
global.index-url='https://mirror.example/simple'
install.timeout='15'
"""
    assert variables(listing) == {
        "UV_FIND_LINKS": f"{tmp_path},https://mirror.example/wheels",
        "UV_DEFAULT_INDEX": "https://mirror.example/from-the-environment",
        "SSL_CERT_FILE": "/etc/ssl/ca.pem",
        "UV_HTTP_TIMEOUT": "15",
    }


def test_R36_further_indexes_are_looked_through_as_pip_does() -> None:
    listing = "global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'\n"
    assert variables(listing) == {
        "UV_INDEX": "https://a.example https://b.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_R36_without_settings_there_are_none() -> None:
    assert variables("") == {}
