"""A broker in a process of its own, to be killed: data directory, durability level, port."""

from __future__ import annotations

import sys

from pillarbox.testing.broker import running_broker

if __name__ == "__main__":
    with running_broker(sys.argv[1], sys.argv[2], port=int(sys.argv[3])) as url:
        print(url, flush=True)
        sys.stdin.read()
