"""Rounds of experiments: scenarios as tables, their rounds, and the processes of a round."""
