"""The data source and the exactly-once sink beside Spark's own files."""
