"""What goes on beside a run: threads, and rounds that are processes of their own.

Start with `rounds`, which repeats a module as a process; `threads` is the context both stand on.
Imports nothing of the application.
"""
