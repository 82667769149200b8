"""What all jobs share: records, names, order, clocks, state and refusals. The rules of the
proposals are in the jobs.
"""
