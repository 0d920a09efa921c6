"""A log that is read by index, and the history of a mailbox on disk.

python examples/10_log_and_history/main.py ./data
"""

from __future__ import annotations

import sys

from pillarbox import Log, open_mailbox
from pillarbox.core import journal

WORTH_TELLING = ("sent", "leased", "returned", "acknowledged")


def clicks(path: str) -> None:
    with Log.open(path) as log:
        log.append_many([b"home", b"tea", b"basket"])  # on disk when it returns

        reader = log.tailer("report")  # its position is saved under this name
        for record in reader:
            print(f"{record.index}: {record.data.decode()}")
        reader.save()

        log.append(b"paid")
        (record,) = log.tailer("report").read()  # from where it was
        print(f"{record.index}: {record.data.decode()}")


def orders(store: str) -> None:
    with open_mailbox(f"file:{store}/orders", str) as box:
        box.send("tea")
        box.receive()[0].nack()
        box.receive()[0].acknowledge()

    with Log.open(f"{store}/log", readonly=True) as history:  # all of it is still there
        kinds = [journal.decode(history.get(i)).kind for i in range(history.end_index)]
    told = [journal.KINDS[kind] for kind in kinds]
    print("the mailbox:", ", ".join(kind for kind in told if kind in WORTH_TELLING))


def main(data: str) -> None:
    clicks(f"{data}/clicks")
    orders(f"{data}/shop")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "./data")
