#!/usr/bin/env bash
# Sets everything up, then style, types, import rules and pytest; other arguments go to pytest.
#
#   ./test.sh --quick   tests/unit without Spark, on few random traces: no Java, no server
#   ./test.sh           every test but the soaks; WEIR_PROCESSES at a time, else three, or two in less
#                       than 12 GB of memory
#   ./test.sh --slow    the soaks and every benchmark, small, as well, and every random trace
#   ./test.sh --nightly that on traces of a new seed, and the seeded faults; what came out is in
#                       tests/nightly.json
#   ./test.sh --changed  the tests nearest to what differs from main, or from a commit that is named
#   ./test.sh tests/unit/config/test_settings.py  one file
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

export WEIR_HOME=${WEIR_HOME:-$PWD/.venv-test}
export WEIR_LOCK=$PWD/requirements-test.lock
python=$WEIR_HOME/bin/python
tests=tests
case ${1:-} in
  --quick) export WEIR_QUICK=1 tests=tests/unit; shift ;;
  --slow) export WEIR_SLOW=1; shift ;;
  --nightly) nightly=1; shift ;;
  --changed) changed=1; shift ;;
esac
WEIR_JARS=${WEIR_QUICK:+none} ./spark-submit.sh --prepare
export WEIR_JARS=$WEIR_HOME/share/weir/jars NUMBA_CACHE_DIR=$WEIR_HOME/share/weir/numba

"$python" -m ruff format --check .
"$python" -m ruff check .
"$python" -m mypy
"$WEIR_HOME/bin/lint-imports"
# Of three one waits for a broker while the others compute; each has a JVM.
memory_kb=$(awk '/^MemTotal/ {print $2}' /proc/meminfo 2>/dev/null || true)
[ "${memory_kb:-0}" -ge 12000000 ] && [ -z "${WEIR_QUICK:-}" ] && processes=3 || processes=2
[ -z "${nightly:-}" ] || exec "$python" -m tests.nightly --processes "${WEIR_PROCESSES:-$processes}" "$@"
if [ -n "${changed:-}" ]; then
  files=$("$python" -m tests.changed "$@")
  [ -n "$files" ] || { echo "nothing that has tests is changed"; exit 0; }
  # shellcheck disable=SC2086
  set -- $files
fi
[ $# -gt 0 ] || set -- "$tests" --numprocesses "${WEIR_PROCESSES:-$processes}" --no-loadscope-reorder
exec "$python" -m pytest --durations 10 "$@"
