"""The command `policy suggest producer-ids`: the rate that each user needs. Start with `suggest`."""
