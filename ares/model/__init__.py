"""The vocabulary of the protocol: identities, tags, configurations, messages and their bytes,
quorums, errors.

Pure: no clock, socket, disk or chance.
"""
