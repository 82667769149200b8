"""Everything before and around a run: the demo, checks of a configuration and of the machine,
packaging.

Start with `doctor`. `connect` has the checks of `validate --connect`; `package` and `warm` serve
`launch`, which starts every command. May import every folder.
"""
