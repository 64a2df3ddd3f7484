"""Large objects as lists of coverable blocks: contents, cuts, and the blocks of an edit.

CoARESF over CoBFS.
"""
