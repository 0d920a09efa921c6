"""Mailboxes in PostgreSQL beside other queues in PostgreSQL, each in a database of its own."""
