"""What a cluster needs and the owner of one PC never meets: capacity, and workers of Dynamo."""
