"""What SQS's clients can ask, by subject. An action takes a call and its shape, and answers."""
