#!/usr/bin/env bash
# Sets everything up, then ruff, mypy, lint-imports and pytest; arguments go to pytest.
#
#   ./test.sh                         every test, two processes at a time; properties on fewer traces
#   ./test.sh --slow                  the same on all traces, and the soaks
#   ./test.sh tests/unit/config/test_settings.py  one file
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

export WEIR_HOME=${WEIR_HOME:-$PWD/.venv-test}
export WEIR_LOCK=$PWD/requirements-test.lock
./spark-submit.sh --prepare
export WEIR_JARS=$WEIR_HOME/share/weir/jars NUMBA_CACHE_DIR=$WEIR_HOME/share/weir/numba

python=$WEIR_HOME/bin/python
"$python" -m ruff format --check .
"$python" -m ruff check .
"$python" -m mypy
"$WEIR_HOME/bin/lint-imports"
[ "${1:-}" != --slow ] || { export WEIR_SLOW=1; shift; }
[ $# -gt 0 ] || set -- --numprocesses 2 --no-loadscope-reorder
exec "$python" -m pytest --durations 10 "$@"
