"""The mailbox in memory against the queues that people would use instead."""
