"""Real servers that tests start themselves: on loopback, free ports, stopped by their own pid."""
