"""`make run`: a tea shop at work, on a real broker and a real pipeline on Spark.

The orders include duplicates, late ones and poison messages. Two clerks of different speed
handle them. A pipeline adds up the same history exactly once, although it is killed midway.
"""
