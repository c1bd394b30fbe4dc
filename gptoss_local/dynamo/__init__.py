"""A worker of NVIDIA Dynamo: our engine behind its frontend and router."""
