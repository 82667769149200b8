"""Cores of the jobs, and what they share.

`events` has the columns and kinds of the event contract, `policies` its policy documents;
`app.contract.event_contract` parses and validates records by them. `jobs` has the declarations.
"""

import udfs  # noqa: F401  (how compiled functions are kept)
