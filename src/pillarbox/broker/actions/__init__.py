"""The SQS actions, by subject. An action takes the request and its parameters."""
