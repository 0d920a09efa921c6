"""The limits of Amazon SQS, for SQS mailboxes and for the broker."""

from typing import Final

MESSAGE_BYTES_MAX: Final = 1_048_576
BATCH_BYTES_MAX: Final = 1_048_576
BATCH_ENTRIES_MAX: Final = 10
RECEIVE_MESSAGES_MAX: Final = 10
ATTRIBUTES_MAX: Final = 10  # per message
DELAY_SECONDS_MAX: Final = 900
VISIBILITY_SECONDS_MAX: Final = 43_200
WAIT_SECONDS_MAX: Final = 20
RETENTION_SECONDS_MAX: Final = 1_209_600
QUEUES_LISTED_MAX: Final = 1_000  # per response
MOVES_LISTED_MAX: Final = 10  # per response
MOVES_PER_SECOND_MAX: Final = 500
TAGS_MAX: Final = 50  # per queue
