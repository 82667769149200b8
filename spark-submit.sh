#!/usr/bin/env bash
# Starts Weir's commands with the Python of their environment; app/setup/launch does the rest, and
# builds the environment on first use, with uv where there is one, else with pip.
#
#   ./spark-submit.sh [options of spark-submit] COMMAND [options of the command]
#   ./spark-submit.sh --dry-run ... COMMAND ...   prints the spark-submit line and stops
#   ./spark-submit.sh --prepare                   environment, jars and compiled cores only
#
# Variables: WEIR_HOME (environment, default .venv), WEIR_LOCK (default requirements.lock),
# WEIR_PYTHON (the Python 3.11 to build it with), WEIR_WORKER_PYTHON (a Python with the packages of
# the lock on every worker: nothing is packed), WEIR_JARS (a folder with the jars: none are fetched),
# SPARK_HOME, SPARK_CONF_DIR, JAVA_HOME.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export WEIR_HOME=${WEIR_HOME:-$here/.venv} WEIR_LOCK=${WEIR_LOCK:-$here/requirements.lock}
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
python=$WEIR_HOME/bin/python
if [ ! -f "$WEIR_HOME/share/weir/lock" ] || [ ! -x "$python" ]; then
  for python in "${WEIR_PYTHON:-}" python3.11 python3 python ''; do
    "$python" -ISc 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && break
  done
fi
if [ -z "$python" ]; then
  echo 'weir: Python 3.11 is missing
      install it with: apt-get install python3.11 python3.11-venv, dnf install python3.11, or
      brew install python@3.11' >&2
  exit 2
fi
exec "$python" -P -m app.setup.launch "$@"
