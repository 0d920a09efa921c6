"""A module whose handler can't handle anything: importing it fails."""

from __future__ import annotations

from pillarbox.worker import worker


@worker("file:./store/parcels")
def pack(parcel: str, number: int) -> None: ...
