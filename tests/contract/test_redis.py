"""The contract, on mailboxes on one real Redis server."""

import pytest

from pillarbox.testing.contract import Backend, MailboxContract
from tests.contract.backends.redis import (
    AsyncRedisBackend,
    RealTimeRedisBackend,
    RedisBackend,
)


class TestRedis(MailboxContract):
    def make_backend(self) -> Backend:
        return RedisBackend()


class TestAsyncRedis(MailboxContract):
    def make_backend(self) -> Backend:
        return AsyncRedisBackend()


@pytest.mark.soak
class TestRealTimeRedis(MailboxContract):
    def make_backend(self) -> Backend:
        return RealTimeRedisBackend()


def test_R32_redis_declares_that_it_can_do_everything() -> None:
    assert dict(RedisBackend.cannot) == {}
