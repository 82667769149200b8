"""The configuration: the keys of `configs/weir.yaml`, read, checked and with their defaults.

One module for each section (`source`, `jobs`, `alerts`, `metrics`, `quality`, pollers, throttle
feed), on the base in `base`; `settings` puts them together, and is where to start reading.
Imports `app.terminal` and `app.errors` only, besides the policies of `state`.
"""
