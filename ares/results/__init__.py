"""What runs left behind as a database: their operation logs, faults and traces, and the figures made of them."""
