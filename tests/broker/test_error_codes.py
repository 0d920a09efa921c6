"""R22: what an error of a store is on the SQS wire; one table has the codes and statuses."""

from __future__ import annotations

import pytest

from pillarbox.broker.errors import of_mailbox
from pillarbox.core import errors
from pillarbox.mailbox.broker.errors import QueueNotFoundError

WIRE = [
    (errors.InvalidParameterError("priority", 256, "0 to 255"), "InvalidParameterValue", 400),
    (errors.SerializationError("no JSON"), "InvalidParameterValue", 400),
    (errors.ReceiptHandleExpiredError("it is over"), "ReceiptHandleIsInvalid", 400),
    (errors.MailboxFullError("it is full"), "OverLimit", 403),
    (QueueNotFoundError("it was deleted"), "AWS.SimpleQueueService.NonExistentQueue", 400),
    (errors.MailboxStorageError("the disk failed"), "ServiceUnavailable", 503),
    (errors.MailboxConnectionError("no answer"), "ServiceUnavailable", 503),
    (errors.UnknownOutcomeError("no answer"), "ServiceUnavailable", 503),
]


@pytest.mark.parametrize(("error", "code", "status"), WIRE)
def test_R22_each_error_of_a_store_has_a_code_and_a_status(
    error: errors.MailboxError, code: str, status: int
) -> None:
    found = of_mailbox(error)
    assert (found.kind.code, found.kind.status, found.message) == (code, status, str(error))
