"""Mailboxes: work queues with a lease on each message, the same on every backend."""
