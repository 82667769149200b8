#!/usr/bin/env bash
# Starts Weir's commands: prepares the environment on first use; app/setup/launch does the rest.
#
#   ./spark-submit.sh COMMAND [options of the command or of spark-submit]
#   ./spark-submit.sh --dry-run COMMAND ...   prints the spark-submit line and stops
#   ./spark-submit.sh --prepare               environment and jars only
#
# Variables: WEIR_HOME (environment, default .venv), WEIR_LOCK (default requirements.lock),
# WEIR_PYTHON (the Python 3.11 to build it with), WEIR_WORKER_PYTHON (a Python with the packages of
# the lock on every worker: nothing is packed), WEIR_JARS (a folder with the jars: none are fetched),
# SPARK_HOME, SPARK_CONF_DIR, JAVA_HOME.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${WEIR_HOME:-$here/.venv}
lock=${WEIR_LOCK:-$here/requirements.lock}
state=$home/share/weir
python=$home/bin/python
uv=''
must_build=75 must_build_and_compile=76   # exit codes of app/setup/launch

say() { printf 'weir: %s\n' "$*" >&2; }
refuse() { say "$1"; [ $# -lt 2 ] || printf '      %s\n' "$2" >&2; exit 2; }
digest() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-16; }

# The command that installs a package: names for apt, dnf, brew.
install_hint() {
  if command -v apt-get >/dev/null; then echo "install it with: sudo apt-get install -y $1"
  elif command -v dnf >/dev/null; then echo "install it with: sudo dnf install -y $2"
  elif command -v brew >/dev/null; then echo "install it with: brew install $3"
  else echo "install $1 with your system's package manager"; fi
}

find_python() {
  local candidate
  for candidate in ${WEIR_PYTHON:+"$WEIR_PYTHON"} python3.11 python3 python; do
    # Not the Python of the environment itself, which goes when it is built again.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11)
        or sys.prefix == sys.argv[1])' "$home" 2>/dev/null; then
      command -v "$candidate"; return
    fi
  done
  return 1
}

build_environment() {
  local base='' built_from
  base=$(find_python) || true
  if [ -z "$base" ] && ! command -v uv >/dev/null; then
    refuse "Python 3.11 is missing" \
      "$(install_hint 'python3.11 python3.11-venv' python3.11 python@3.11)"
  fi
  if [ -d "$home" ] && [ -n "$(ls -A "$home")" ]; then
    [ -f "$home/pyvenv.cfg" ] || [ -d "$state" ] ||
      refuse "$home is not an environment of Weir and is not empty" "WEIR_HOME names another folder"
    built_from=$(cat "$state/lock.name" 2>/dev/null || basename "$lock")
    [ "$built_from" = "$(basename "$lock")" ] ||
      refuse "$home was built from $built_from, not from $(basename "$lock")" \
        "WEIR_LOCK names the lock, or WEIR_HOME another folder"
    say "the environment in $home is unfinished or of another lock: building it again"
    rm -rf "$home"
  fi
  mkdir -p "$state"
  compiling=''
  trap 'say "interrupted; the next start begins the environment again"
    [ -z "$compiling" ] || kill "$compiling" 2>/dev/null; exit 130' INT TERM
  say "building the Python environment in $home (about 1.3 GB, one to three minutes)"
  if command -v uv >/dev/null; then
    uv venv --quiet --allow-existing --python "${base:-3.11}" "$home" >&2 ||
      refuse "uv could not create an environment with Python 3.11 (see above)"
    uv=uv
  else
    "$base" -c 'import venv, ensurepip' 2>/dev/null ||
      refuse "the venv module of $base is missing" \
        "$(install_hint python3.11-venv python3.11 python@3.11)"
    "$base" -m venv "$home" >&2
    fetch_uv
  fi
  # Spark takes as long as all others, and the cores are compiled without it.
  awk -v spark=1 "$only" "$lock" > "$state/spark.lock"
  awk -v spark=0 "$only" "$lock" > "$state/others.lock"
  install "$state/others.lock"
  say "packages are installed ($SECONDS s); now Spark (420 MB)"
  if [ $# -gt 0 ]; then compile "$@" & compiling=$!; fi
  install "$state/spark.lock"
  rm -rf "$state/uv"
  trap - INT TERM
  # Last: an environment without it is unfinished.
  basename "$lock" > "$state/lock.name"
  printf '%s\n' "$lock_hash" > "$state/lock"
  say "the Python environment is ready ($SECONDS s)"
}

# Of a lock, the package pyspark, or all others.
only='/^[a-zA-Z0-9]/ { is_spark = /^pyspark==/ } is_spark == spark'

# uv of the package index, at its pinned hash; without it pip installs the packages.
fetch_uv() {
  local index
  "$python" -m pip install -q --disable-pip-version-check --no-deps --require-hashes \
    --target "$state/uv" -r "$here/conf/installer.lock" >&2 2>/dev/null || true
  [ -x "$state/uv/bin/uv" ] || return 0
  uv=$state/uv/bin/uv
  # uv does not read pip's settings.
  index=$("$python" -m pip config get global.index-url 2>/dev/null || true)
  [ -z "${PIP_INDEX_URL:-$index}" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$index}}
}

# install LOCK: its packages, each with its hash; a lock is complete.
install() {
  if [ -n "$uv" ]; then
    "$uv" pip install --quiet --python "$python" --no-deps --require-hashes -r "$1" >&2 && return
    [ "$uv" != uv ] || refuse "the packages of $(basename "$lock") could not be installed (see above)"
    say "uv could not install them; trying pip"
  fi
  "$python" -m pip install --disable-pip-version-check --no-deps --require-hashes -r "$1" >&2 ||
    refuse "the packages of $(basename "$lock") could not be installed (see above)"
}

# compile WORD ...: beside the installation of Spark; the lock of the environment is not its own
compile() { exec 9>&-; exec "$python" -P -m app.setup.launch "$home" compile "$@"; }

lock_hash=$(digest < "$lock")
prepared() { [ -x "$python" ] && [ "$(cat "$state/lock" 2>/dev/null)" = "$lock_hash" ]; }

# prepare_environment [WORD ...]: with the words of a line, cores are compiled for it meanwhile
prepare_environment() {
  prepared && return
  mkdir -p "$home"
  if command -v flock >/dev/null; then
    # Two starts at once: the second waits for the first. The lock is outside the deleted folder.
    exec 9> "$home.lock"
    flock -n 9 || { say "waiting for another start that prepares $home"; flock 9; }
    prepared || build_environment "$@"
    exec 9>&-
  else
    build_environment "$@"
  fi
}

# ---------------------------------------------------------------- go
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}

if ! prepared; then
  # Any Python 3.11 reads the line: a mistake in it, a dry run and the help need no environment.
  code=$must_build
  if base=$(find_python); then
    code=0
    "$base" -P -m app.setup.launch "$home" unbuilt "$@" || code=$?
  fi
  case $code in
    $must_build) prepare_environment ;;
    $must_build_and_compile) prepare_environment "$@" ;;
    *) exit $code ;;
  esac
fi
exec "$python" -P -m app.setup.launch "$home" built "$@"
