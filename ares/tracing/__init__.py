"""Traces of operations and their times, exported beside the operations.

They are recorded as plain data, made into spans and handed to a collector.
"""
