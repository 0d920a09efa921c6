"""Workers side by side: no-op tasks on Redis, from the call that sends them to the acknowledge."""
