"""The same task, which does nothing, as each of the peers wants it written."""
