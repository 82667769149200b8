"""The configuration: the keys of `configs/weir.yaml`, read and checked, with their defaults.

Start with `settings`, which combines the sections. Each section has a module (`source`, `jobs`,
`alerts`, `metrics`, `quality`, pollers, throttle feed) on the base in `base`. Imports only
`app.terminal`, `app.errors` and the policies of `state`.
"""
