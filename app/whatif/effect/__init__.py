"""What other policies would have changed: `policy diff A B --on RANGE`.

`command` replays the range under both sets of policies; `compare` compares the tables of the two
warehouses, `words` prints the result and `page` makes a page of it.
"""
