"""From start to stop: what it tells, what it keeps, and how it goes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pillarbox.broker import confirmations
from pillarbox.broker.config import DeclaredQueue, load
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError
from pillarbox.log import RealDisk
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import running_broker
from tests.broker.server_process import Server
from tests.broker.support import Client, Refused, text


def test_R58_it_starts_and_tells_where_it_is(store: str) -> None:
    with Server("--data", store) as server:
        assert server.told["data"] == store
        assert server.told["durability"] == "fsync"
        assert server.told["dashboard"] == f"{server.url}/"
        with Client(server.url) as sqs:
            assert sqs.raw("GET", "/readyz")[0] == 200
        assert server.stop() == 0


@pytest.mark.soak
def test_R58_it_starts_in_under_a_second(store: str) -> None:
    """In soak, for it measures: a busy machine may be late."""
    with Server("--data", store) as server:
        assert server.seconds_to_start < 1


def test_R58_a_graceful_stop_answers_parked_polls_and_keeps_everything(store: str) -> None:
    with Server("--data", store) as server:
        sqs = Client(server.url)
        queue = sqs.create()
        sqs.send(queue, "kept")
        empty = sqs.create()
        answers: list[list[str]] = []
        other = Client(server.url)
        poll = threading.Thread(
            target=lambda: answers.append(other.bodies(empty, WaitTimeSeconds=20))
        )
        poll.start()
        while "pillarbox_parked_polls 1.0" not in sqs.raw("GET", "/metrics")[2].decode():
            pass
        assert server.stop() == 0
        poll.join()
        assert answers == [[]]
        sqs.close()
        other.close()
        server.start()
        with Client(server.url) as sqs:
            assert sqs.bodies(queue) == ["kept"]
        server.stop()


def test_R58_queues_attributes_tags_and_messages_survive_a_restart(store: str) -> None:
    with running_broker(store, "fsync") as url:
        sqs = Client(url)
        dead = sqs.create()
        policy = f'{{"deadLetterTargetArn":"{sqs.arn(dead)}","maxReceiveCount":3}}'
        queue = sqs.create(VisibilityTimeout=9, RedrivePolicy=policy)
        fifo = sqs.create(fifo=True, ContentBasedDeduplication="true")
        gone = sqs.create()
        sqs("TagQueue", QueueUrl=queue, Tags={"team": "post"})
        sqs.send(queue, "a", MessageAttributes={"n": text("1", "Number.int")})
        sqs.send(fifo, "b", MessageGroupId="g")
        sqs.send(gone, "c")
        sqs("DeleteQueue", QueueUrl=gone)
        sqs.create()  # takes the number that is free now
        before = sqs.attributes(queue)
        sqs.close()
    for _ in range(2):  # once from the log and the snapshot, once more from the next snapshot
        with running_broker(store, "fsync") as url:
            sqs = Client(url)
            name = queue.rpartition("/")[2]
            assert sqs.attributes(name) == before
            assert sqs("ListQueueTags", QueueUrl=name) == {"Tags": {"team": "post"}}
            sources = sqs("ListDeadLetterSourceQueues", QueueUrl=dead.rpartition("/")[2])
            assert [each.rpartition("/")[2] for each in sources["queueUrls"]] == [name]
            assert len(sqs("ListQueues")["QueueUrls"]) == 4
            assert gone.rpartition("/")[2] not in str(sqs("ListQueues"))
            sqs.send(fifo.rpartition("/")[2], "b", MessageGroupId="g")  # a duplicate, still
            assert sqs.counts(fifo.rpartition("/")[2]) == (1, 0, 0)
            sqs.close()
    with running_broker(store, "fsync") as url:
        sqs = Client(url)
        (message,) = sqs.receive(name, MessageAttributeNames=["All"])
        assert message["MessageAttributes"] == {"n": text("1", "Number.int")}
        sqs.close()


def test_R58_a_receipt_handle_outlives_a_restart(store: str) -> None:
    with running_broker(store, "fsync") as url:
        sqs = Client(url)
        queue = sqs.create()
        sqs.send(queue, "a")
        (message,) = sqs.receive(queue)
        sqs.close()
    with running_broker(store, "fsync") as url:
        sqs = Client(url)
        name = queue.rpartition("/")[2]
        assert sqs.receive(name) == []
        sqs.delete(name, message)
        assert sqs.counts(name) == (0, 0, 0)
        sqs.close()


def test_R58_what_is_not_confirmed_is_not_answered_as_done(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails under the broker: 503, and /readyz says so."""

    def fail(self: RealDisk, handle: int) -> None:
        raise OSError(5, "Input/output error")

    with running_broker(store, "fsync") as url, Client(url) as sqs:
        queue = sqs.create()
        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "fdatasync", fail)
            with pytest.raises(Refused) as refused:
                sqs.send(queue, "a")
        assert (refused.value.status, refused.value.code) == (503, "ServiceUnavailable")
        assert sqs.raw("GET", "/readyz")[0] == 503
        assert sqs.raw("GET", "/livez")[0] == 200
        with pytest.raises(Refused):  # a failed sync is never tried again
            sqs.send(queue, "b")


@pytest.mark.parametrize("hands_over", [True, False], ids=["", "control"])
def test_R58_a_slow_disk_holds_up_nobody_who_does_not_wait_for_it(
    store: str, monkeypatch: pytest.MonkeyPatch, hands_over: bool
) -> None:
    """A quick disk is synced by the event loop itself, a slow one by a thread."""
    fdatasync, syncing, gate = RealDisk.fdatasync, threading.Event(), threading.Event()

    def slow(self: RealDisk, handle: int) -> None:
        time.sleep(2 * confirmations._QUICK_SECONDS)
        fdatasync(self, handle)

    def stuck(self: RealDisk, handle: int) -> None:
        syncing.set()
        gate.wait(30)
        fdatasync(self, handle)

    with running_broker(store, "fsync") as url, Client(url) as sqs, Client(url) as other:
        queue = sqs.create()
        monkeypatch.setattr(RealDisk, "fdatasync", slow)
        while url.broker.store.writer.sync_seconds < confirmations._QUICK_SECONDS:
            sqs.send(queue, "a")
        if not hands_over:
            monkeypatch.setattr(confirmations, "_QUICK_SECONDS", 60)
        monkeypatch.setattr(RealDisk, "fdatasync", stuck)
        with ThreadPoolExecutor(2) as threads:
            sent = threads.submit(sqs.send, queue, "b")
            assert syncing.wait(30)
            asked = threads.submit(other.raw, "GET", "/livez")
            try:
                if hands_over:
                    assert asked.result(30)[0] == 200
                else:
                    with pytest.raises(TimeoutError):
                        asked.result(0.5)
                assert not sent.done()
            finally:
                gate.set()
            assert sent.result(30)


# -- configuration -----------------------------------------------------------------------------

FILE = """
port = 0
data = "none"
region = "eu-central-1"
account = "123456789012"

[[keys]]
id = "AK"
secret = "s"
queues = ["orders*"]
actions = ["send"]

[queues.orders]
priority = 7
tags = { team = "post" }
[queues.orders.attributes]
VisibilityTimeout = 60
SqsManagedSseEnabled = false

[queues.letters]
[queues.letters.attributes.RedrivePolicy]
deadLetterTargetArn = "arn:aws:sqs:eu-central-1:123456789012:graves"
maxReceiveCount = 2

[queues.graves]

[queues."line.fifo".attributes]
ContentBasedDeduplication = true
"""


def test_R59_the_file_is_read_and_flags_go_before_it(tmp_path: Path) -> None:
    path = tmp_path / "pillarbox.toml"
    path.write_text(FILE)
    config = load(str(path), {"region": "us-west-2", "port": None})
    assert (config.region, config.account, config.port) == ("us-west-2", "123456789012", 0)
    assert config.data is None
    assert config.keys[0].actions == ("send",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("prot = 1", "prot"),
        ("port = 'x'", "port"),
        ("port = 70000", "port"),
        ("account = '12'", "12 digits"),
        ("host = '0.0.0.0'", "keys"),
        ("[queues.'a b']", "letters, digits"),
        ("[queues.a]\npriority = 256", "priority"),
        ("nonsense", "TOML"),
        ("region = 'é'", "TOML"),  # not in UTF-8
    ],
)
def test_R59_a_file_that_is_wrong_says_where(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "pillarbox.toml"
    path.write_text(content, "latin-1")
    with pytest.raises(InvalidParameterError, match=says):
        load(str(path), {})


def test_R59_a_file_that_was_named_must_exist() -> None:
    with pytest.raises(InvalidParameterError, match="exists"):
        load("/nowhere/pillarbox.toml", {})


def test_R59_queues_of_the_file_exist_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "pillarbox.toml"
    path.write_text(FILE.replace("[[keys]]", "[[none]]").partition("[[none]]")[0] + FILE.partition('["send"]')[2])  # fmt: skip  # noqa: E501
    config = load(str(path), {})
    with running_broker(config=config) as url:
        sqs = Client(url)
        names = [each.rpartition("/")[2] for each in sqs("ListQueues")["QueueUrls"]]
        assert names == ["graves", "letters", "line.fifo", "line_dlq.fifo", "orders", "orders_dlq"]  # fmt: skip  # noqa: E501
        known = sqs.attributes("orders")
        assert (known["VisibilityTimeout"], known["SqsManagedSseEnabled"]) == ("60", "false")
        assert "orders_dlq" in known["RedrivePolicy"]
        assert sqs("ListQueueTags", QueueUrl="orders") == {"Tags": {"team": "post"}}
        assert '"maxReceiveCount":2' in sqs.attributes("letters")["RedrivePolicy"]
        assert sqs.attributes("line.fifo")["ContentBasedDeduplication"] == "true"
        sqs.send("orders", "low", MessageAttributes={"Pillarbox.Priority": text("1", "Number")})
        sqs.send("orders", "default")
        assert sqs.bodies("orders") == ["default", "low"]
        sqs.close()


def test_R59_a_start_changes_only_the_queues_whose_declaration_changed(store: str) -> None:
    arn = "arn:aws:sqs:us-east-1:000000000000:graves"

    def declared(count: int) -> dict[str, DeclaredQueue]:
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": count}
        return {
            "orders": DeclaredQueue(attributes={"RedrivePolicy": policy}, tags={"team": "post"}),
            "graves": DeclaredQueue(attributes={"DelaySeconds": 1}),
        }

    def modified(count: int, clock: FakeClock) -> list[str]:
        with running_broker(store, queues=declared(count), clock=clock) as url, Client(url) as sqs:
            known = [sqs.attributes(name) for name in ("orders", "graves")]
            assert f'"maxReceiveCount":{count}' in known[0]["RedrivePolicy"]
            return [each["LastModifiedTimestamp"] for each in known]

    clock = FakeClock()
    first = modified(3, clock)
    clock.advance(10)
    assert modified(3, clock) == first
    clock.advance(10)
    orders, graves = modified(4, clock)
    assert (int(orders) - int(first[0]), graves) == (20, first[1])


def test_R59_a_queue_that_SQS_would_refuse_is_told_by_its_name() -> None:
    wrong = {"orders": DeclaredQueue(attributes={"DelaySeconds": 901})}
    with (
        pytest.raises(InvalidParameterError, match=r"parameter DelaySeconds.*'orders'"),
        running_broker(queues=wrong),
    ):
        pass


def test_R59_environment_goes_before_the_file_and_flags_before_both(tmp_path: Path) -> None:
    path = tmp_path / "pillarbox.toml"
    path.write_text('port = 0\ndata = "none"\ndurability = "os"\n')
    env = {"PILLARBOX_CONFIG": str(path), "PILLARBOX_DATA": str(tmp_path / "env")}
    with Server("--durability", "memory", env=env) as server:
        assert server.told["data"] == str(tmp_path / "env")
        assert server.told["durability"] == "memory"
        server.stop()


def test_R59_a_port_that_is_taken_is_told_in_one_line(store: str) -> None:
    with running_broker() as url, pytest.raises(AssertionError, match="can't listen"):
        Server("--data", store, "--port", url.rpartition(":")[2])


def test_R55_whoever_still_holds_a_deleted_queue_can_not_write_to_it(store: str) -> None:
    """An entry of a queue that is gone would keep the store from opening again."""
    first = DurableStore(store)
    session = first.session("orders")
    session.send((b"a",))
    first.drop("orders")
    with pytest.raises(MailboxClosedError, match="deleted"):
        session.send((b"b",))
    first.session("orders").send((b"c",))
    first.close()
    second = DurableStore(store)
    orders = second.sessions["orders"]
    assert orders.bodies([record for record, _ in orders.look("ready", None)]) == [b"c"]
    second.close()
