"""A storage server as a pure function from requests to replies, with the facts of its state.

Facts must outlast the process.
"""
