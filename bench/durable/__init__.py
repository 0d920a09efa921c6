"""The durable mailbox and its log, beside others that keep messages on disk."""
