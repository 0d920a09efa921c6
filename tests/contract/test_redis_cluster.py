"""The contract, on mailboxes on a real cluster of three masters and three replicas."""

from pillarbox.testing.contract import Backend, MailboxContract
from tests.contract.backends.redis import AsyncRedisClusterBackend, RedisClusterBackend


class TestRedisCluster(MailboxContract):
    def make_backend(self) -> Backend:
        return RedisClusterBackend()


class TestAsyncRedisCluster(MailboxContract):
    def make_backend(self) -> Backend:
        return AsyncRedisClusterBackend()


def test_R33_a_cluster_declares_that_it_can_do_everything() -> None:
    assert dict(RedisClusterBackend.cannot) == {}
