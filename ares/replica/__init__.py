"""A storage server as a function from requests to replies, and what of its state must outlast the process. Pure."""
