"""`make run`: a tea shop at work, on a real broker and a real pipeline on Spark.

Orders come in with duplicates, late ones and poison; two clerks of different speed work them
off; a pipeline adds up the same history exactly once, although it is killed on the way.
"""
