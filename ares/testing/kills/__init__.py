"""kill -9 by the thousand, and a report of lost data."""
