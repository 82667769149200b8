"""What people and other programs see of the tables; what a job shows is in its room, `app.jobs`.

Start with the command that you want: `explain`, `report`, `alerts`, `metrics`, `audit` (`quality`),
`forecast`, `reconcile`, `policy`. Each loops over the rooms and names no job. Imports `app.read`,
`app.tables` and `app.config`.
"""
