"""What tests share: starters of servers, traces, rows, waiting."""
