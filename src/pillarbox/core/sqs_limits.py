"""The limits of Amazon SQS: for mailboxes on it, and for the broker that speaks its protocol."""

from typing import Final

MESSAGE_BYTES_MAX: Final = 1_048_576
BATCH_BYTES_MAX: Final = 1_048_576
BATCH_ENTRIES_MAX: Final = 10
RECEIVE_MESSAGES_MAX: Final = 10
ATTRIBUTES_MAX: Final = 10  # of a message
DELAY_SECONDS_MAX: Final = 900
VISIBILITY_SECONDS_MAX: Final = 43_200
WAIT_SECONDS_MAX: Final = 20
RETENTION_SECONDS_MAX: Final = 1_209_600
QUEUES_LISTED_MAX: Final = 1_000  # in one answer
MOVES_LISTED_MAX: Final = 10  # in one answer
MOVES_PER_SECOND_MAX: Final = 500
TAGS_MAX: Final = 50  # of a queue
