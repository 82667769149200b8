"""The configuration: the keys of `configs/weir.yaml`, read and checked, with their defaults.

Start with `settings`, which combines the sections. Each section has a module (`source`, `jobs`,
`alerts`, `metrics`, `quality`, pollers, throttle feed) on the base in `base`. Imports only
`app.terminal`, `app.errors` and the policies of `state`.
"""

ARCHIVE = "archive"
"""The archive of the records: a member of a group of `queries`, as a job is, and the name of its
checkpoint.
"""
