"""Mailboxes on Redis beside other queues on Redis, each with a server of its own."""
