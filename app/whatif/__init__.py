"""Replays of the archive in batch, under other settings.

Start with `replay.replay_command`. `replay` runs the jobs over the archive into a warehouse of its own,
and `effect` compares two replays. What one job alone can compute from the archive, the commands
`bakeoff` and `policy suggest`, is in its room (`app/jobs/<job>/whatif`). Imports `app.engine` for
the operators and `app.show.report` for pages.
"""
