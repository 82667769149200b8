"""The levels of client quotas and the units of their types, in words."""

from __future__ import annotations

UNITS = {
    "produce": "byte",
    "fetch": "byte",
    "request": "%",
    "controller_mutation": "partition",
}
LEVELS = {
    "user_client": "set for this user with this client",
    "user_default_client": "set for this user with any client",
    "user": "set for the user, and shared by its clients",
    "default_user_client": "set for any user with this client",
    "default_user_default_client": "set for any user with any client",
    "default_user": "the default of users, shared by the clients of the user",
    "client": "set for the client, and shared by its users",
    "default_client": "the default of clients, shared by the users of the client",
}
SEARCHED = {
    "user_client": "the user with this client",
    "user_default_client": "the user with any client",
    "user": "the user",
    "default_user_client": "any user with this client",
    "default_user_default_client": "any user with any client",
    "default_user": "any user",
    "client": "the client",
    "default_client": "any client",
}
"""In the order in which Kafka searches them."""
