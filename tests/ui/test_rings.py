"""The history behind the charts: rates that are right, hours in little space."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import pytest

from pillarbox import open_mailbox
from pillarbox.dashboard import mount
from pillarbox.dashboard.rings import SPANS, History
from pillarbox.mailbox.protocol import Stats
from pillarbox.testing.broker import running_broker


def stats(ready: int) -> Stats:
    return Stats(ready, 0, 0, 0, None)


def test_R59_two_close_samples_make_no_peak() -> None:
    """At 30 messages a second, with a sample taken just after another one."""
    history = History()
    for second in range(60):
        history.add(1_000 + second, stats(second), (30 * second, 0))
        history.add(1_000.004 + second, stats(second), (30 * second + 28, 0))

    rates = [point.sent_per_second for point in history.points("10 minutes")]

    assert len(rates) == 12
    assert all(rate == pytest.approx(30, rel=0.05) for rate in rates)
    assert history.rates()[0] == pytest.approx(30, rel=0.05)


def test_R59_what_was_sent_between_rare_samples_is_spread_over_the_time_between() -> None:
    history = History()
    for minute in range(10):
        history.add(60.0 * minute, stats(0), (600 * minute, 60 * minute))

    point = history.points("10 minutes")[-3]

    assert (point.sent_per_second, point.done_per_second) == pytest.approx((10, 1))
    assert point.ready is None  # nobody looked then


@pytest.mark.parametrize(
    ("span", "hours"), [("10 minutes", 1 / 6), ("2 hours", 2), ("24 hours", 24)]
)
def test_R59_a_span_is_kept_whole_and_no_longer(span: str, hours: float) -> None:
    history = History()
    for at in range(0, 30 * 3600, 5):
        history.add(at, stats(at), None)

    points = history.points(span)

    step, count = SPANS[span]
    assert step * count == hours * 3600
    assert len(points) == count
    assert [point.before for point in points[-2:]] == [step, 0]
    assert points[-1].ready == 30 * 3600 - 5


def test_R59_the_highest_level_of_an_interval_is_kept() -> None:
    history = History()
    for second, ready in enumerate((1, 9, 2, 3, 4)):
        history.add(second, stats(ready), None)

    (point,) = history.points("10 minutes")

    assert (point.ready, point.sent_per_second) == (9, None)


def test_R59_a_queue_that_was_made_anew_counts_from_nothing() -> None:
    history = History()
    history.add(0, stats(0), (1_000, 1_000))
    history.add(5, stats(0), (10, 0))

    assert history.rates() == (0, 0)


def test_R59_a_day_takes_little_space() -> None:
    history = History()
    history.add(0, stats(0), (0, 0))

    size = sum(sys.getsizeof(ring._values) for ring in history._rings.values())

    assert size < 20_000


def filled(at: float) -> History:
    history = History()
    for second in range(0, 86_400, 60):
        history.add(at - 86_400 + second, stats(second // 60), (second, second))
    return history


def test_R59_a_history_goes_on_after_a_restart() -> None:
    now = 2_000_000_000.0
    before = filled(now)
    after = History(before.state(), now + 300)
    for span in SPANS:
        assert after.points(span) == before.points(span)

    after.add(now + 300, stats(7), (5, 5))  # counts begin at nothing again
    after.add(now + 360, stats(7), (65, 5))

    points = after.points("2 hours")
    assert [point.ready for point in points[-2:]] == [7, 7]
    assert points[-1].sent_per_second == pytest.approx(1)
    assert [point.ready for point in points[-7:-2]] == [None] * 5  # it was down
    assert points[-8].ready == 1_439


def test_R59_a_history_from_the_future_or_of_another_size_is_left_out() -> None:
    now = 2_000_000_000.0
    state = filled(now).state()
    assert History(state, now - 7_200).points("24 hours") == []  # the clock was set back
    short = {span: (last, data[:-8]) for span, (last, data) in state.items()}
    assert History({**short, "a year": (1, b"")}, now).points("24 hours") == []


def test_R59_the_history_of_a_broker_is_kept_beside_its_data(tmp_path: Path) -> None:
    file = tmp_path / "dashboard.history"
    with running_broker(str(tmp_path), "os") as url:
        dashboard = mount(url.broker)
        for name in ("kept", "dropped"):
            open_mailbox(f"{url}/{name}", str).send_many(["a"] * 7)
        urllib.request.urlopen(f"{url}/dashboard/").read()
        dashboard.samples._histories["kept"] = filled(dashboard.samples._now())
    assert file.stat().st_size < 20_000  # and the broker's end wrote it

    with running_broker(str(tmp_path), "os") as url:
        dashboard = mount(url.broker)
        samples = dashboard.samples
        assert len(samples.points("kept", "24 hours")) == 144
        assert dashboard.mailboxes.admin is not None
        dashboard.mailboxes.admin.delete("dropped")
        samples.take()
        samples.save()
        assert "dropped" not in samples._histories

    file.write_bytes(b"no history")
    with running_broker(str(tmp_path), "os") as url:
        samples = mount(url.broker).samples
        assert samples.points("kept", "24 hours") == []
    with running_broker() as url:
        samples = mount(url.broker).samples
        samples.save()  # in memory there is no file
        assert samples._boxes.history_file is None
