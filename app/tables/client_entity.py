"""The name of an entity of client quotas: a user, a client id, or both."""

from __future__ import annotations


def client_entity(table: str) -> str:
    """The expression for the columns `user` and `client` of a table, of which one may be empty."""
    user, client = f"{table}.user", f"{table}.client"
    return (
        f"CASE WHEN {client} = '' THEN {user} WHEN {user} = '' THEN {client}"
        f" ELSE concat({user}, '/', {client}) END"
    )
