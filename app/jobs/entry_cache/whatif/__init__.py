"""The command `bakeoff`: replays a trace under every eviction policy at several sizes."""
