"""What every job needs and no proposal rules: records, names, order, clocks, state, refusals."""
