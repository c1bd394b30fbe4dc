"""Serve many users: how many machines they take, and workers of Dynamo."""
