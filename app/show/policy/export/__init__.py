"""The command `policy export`: policies as commands of the tools that apply limits.

    documents ─► a format ─► text, and the limits that the format cannot express

Start with `command`; each format is a module: `kafka_configs`, `pulsar_commands`. `exported` has
what they share.
"""
