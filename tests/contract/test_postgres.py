"""The contract, on mailboxes in a database of a real PostgreSQL server."""

import pytest

from pillarbox.testing.contract import Backend, MailboxContract
from tests.contract.backends.postgres import (
    AsyncPostgresBackend,
    PostgresBackend,
    RealTimePostgresBackend,
)


class TestPostgres(MailboxContract):
    def make_backend(self) -> Backend:
        return PostgresBackend()


class TestAsyncPostgres(MailboxContract):
    def make_backend(self) -> Backend:
        return AsyncPostgresBackend()


@pytest.mark.soak
class TestRealTimePostgres(MailboxContract):
    def make_backend(self) -> Backend:
        return RealTimePostgresBackend()


def test_R140_postgres_declares_that_it_can_do_everything() -> None:
    assert dict(PostgresBackend.cannot) == {}
