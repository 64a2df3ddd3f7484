"""kill -9 by the thousand, and what was lost."""
