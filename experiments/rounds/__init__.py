"""Rounds of experiments: scenarios as tables, the rounds that they ask for, and the processes that carry them out."""
