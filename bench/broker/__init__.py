"""The broker beside Redis, moto's server and boto3."""
