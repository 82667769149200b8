"""The configuration: what `configs/weir.yaml` may say, read, checked and with its defaults.

One module for each section (`source`, `jobs`, `alerts`, `metrics`, `quality`, pollers, throttle
feed), on the base in `base`; `settings` puts them together, and is where to start reading.
Imports `app.terminal` and `app.errors` only, besides the policies of `state`.
"""
