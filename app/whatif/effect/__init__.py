"""Effects of other policies: `policy diff A B --on RANGE`.

`command` replays the range under both sets of policies, `compare` compares the tables of the two
warehouses, `words` prints the result and `page` writes it as a page.
"""
