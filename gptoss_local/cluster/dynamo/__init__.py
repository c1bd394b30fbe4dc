"""A worker of NVIDIA Dynamo: our engine for its frontend and router."""
