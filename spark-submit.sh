#!/usr/bin/env bash
# Starts Weir's commands: prepares the environment on first use, and Spark for those that need it.
#
#   ./spark-submit.sh COMMAND [options of the command or of spark-submit]
#   ./spark-submit.sh --dry-run COMMAND ...   prints the spark-submit line and stops
#   ./spark-submit.sh --prepare               environment and jars only
#
# Variables: WEIR_HOME (environment, default .venv), WEIR_LOCK (default requirements.lock),
# WEIR_PYTHON (the Python 3.11 to build it with), WEIR_WORKER_PYTHON (a Python with the packages of
# the lock on every worker: nothing is packed), SPARK_HOME, SPARK_CONF_DIR, JAVA_HOME.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${WEIR_HOME:-$here/.venv}
lock=${WEIR_LOCK:-$here/requirements.lock}
state=$home/share/weir
python=$home/bin/python
pyspark=$home/lib/python3.11/site-packages/pyspark

say() { printf 'weir: %s\n' "$*" >&2; }
refuse() { say "$1"; [ $# -lt 2 ] || printf '      %s\n' "$2" >&2; exit 2; }
# Words as a shell would read them again.
print_line() {
  local word
  for word in "$@"; do
    case $word in
      ''|*[!A-Za-z0-9_./:=,@%+*#-]*|*'*'*) printf "'%s' " "$(printf '%s' "$word" | sed "s/'/'\\\\''/g")" ;;
      *) printf '%s ' "$word" ;;
    esac
  done
  echo
}
digest() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-16; }

# The command that installs a package: names for apt, dnf, brew.
install_hint() {
  if command -v apt-get >/dev/null; then echo "install it with: sudo apt-get install -y $1"
  elif command -v dnf >/dev/null; then echo "install it with: sudo dnf install -y $2"
  elif command -v brew >/dev/null; then echo "install it with: brew install $3"
  else echo "install $1 with your system's package manager"; fi
}

# ---------------------------------------------------------------- command line
# Options of the command and of spark-submit may be in any order.
dry_run='' prepare_only='' help='' command='' seen_spark_only=''
app=() spark=() confs=()
master='' deploy_mode='' properties='' jars='' py_files='' archives='' files='' packages='' ivy=()

take() {  # take OPTION VALUE: an option of spark-submit; lists are joined with ours below
  case $1 in
    --master) master=$2 ;;
    --deploy-mode) deploy_mode=$2 ;;
    --jars) jars=${jars:+$jars,}$2 ;;
    --py-files) py_files=${py_files:+$py_files,}$2 ;;
    --archives) archives=${archives:+$archives,}$2 ;;
    --files) files=${files:+$files,}$2 ;;
    --remote) refuse "--remote: Weir needs a classic Spark session; give --master" ;;
    --conf|-c) confs+=("$2"); spark+=(--conf "$2") ;;
    --properties-file) properties=$2; spark+=("$1" "$2") ;;
    --repositories) ivy+=("$1" "$2"); spark+=("$1" "$2") ;;
    --packages) packages=${packages:+$packages,}$2 ;;
    --kill|--status) seen_spark_only=1; spark+=("$1" "$2") ;;
    *) spark+=("$1" "$2") ;;
  esac
}

while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry_run=1; shift ;;
    --prepare) prepare_only=1; shift ;;
    --help|-h) help=1; app+=("$1"); shift ;;
    --supervise|--verbose|-v|--load-spark-defaults) spark+=("$1"); shift ;;
    --master|--deploy-mode|--class|--name|--jars|--packages|--exclude-packages|--repositories|\
--py-files|--files|--archives|--conf|-c|--properties-file|--driver-memory|--driver-java-options|\
--driver-library-path|--driver-class-path|--driver-default-class-path|--executor-memory|\
--proxy-user|--driver-cores|--total-executor-cores|--executor-cores|--num-executors|--principal|\
--keytab|--queue|--remote|--kill|--status)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      take "$1" "$2"; shift 2 ;;
    --master=*|--deploy-mode=*|--class=*|--name=*|--jars=*|--packages=*|--exclude-packages=*|\
--repositories=*|--py-files=*|--files=*|--archives=*|--conf=*|--properties-file=*|\
--driver-memory=*|--driver-java-options=*|--driver-library-path=*|--driver-class-path=*|\
--driver-default-class-path=*|--executor-memory=*|--proxy-user=*|--driver-cores=*|\
--total-executor-cores=*|--executor-cores=*|--num-executors=*|--principal=*|--keytab=*|--queue=*|\
--remote=*|--kill=*|--status=*)
      take "${1%%=*}" "${1#*=}"; shift ;;
    -*) app+=("$1"); shift ;;
    *)
      if [ -z "$command" ]; then
        command=$1
        case $command in
          # Without Spark every option is the command's own, also one that spark-submit knows.
          generate|validate|tables|query|explain|report|quality|alerts|metrics|bakeoff|what-if)
            while [ $# -gt 0 ]; do
              case $1 in --dry-run) dry_run=1 ;; *) app+=("$1") ;; esac
              shift
            done
            break ;;
          maintain)  # has a --dry-run of its own
            app+=("$@")
            break ;;
        esac
      fi
      app+=("$1"); shift ;;
  esac
done

needs_spark=''
case $command in
  demo|run|doctor) needs_spark=1 ;;
  ''|generate|validate|tables|query|explain|report|quality|alerts|metrics|maintain|bakeoff|what-if) ;;
  *) refuse "No such command '$command'" "--help lists the commands" ;;
esac
[ -z "$help" ] || needs_spark=''
[ -z "$seen_spark_only" ] || needs_spark=1

usage() {
  sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  echo "Commands: demo run generate validate doctor tables query explain report quality alerts"
  echo "metrics maintain bakeoff what-if."
  echo "Every option of spark-submit (--master, --conf, --queue ...) is passed through."
}

# ---------------------------------------------------------------- the Python environment
find_python() {
  local candidate
  for candidate in ${WEIR_PYTHON:+"$WEIR_PYTHON"} python3.11 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      command -v "$candidate"; return
    fi
  done
  return 1
}

build_environment() {
  local base=''
  base=$(find_python) || true
  if [ -z "$base" ] && ! command -v uv >/dev/null; then
    refuse "Python 3.11 is missing" \
      "$(install_hint 'python3.11 python3.11-venv' python3.11 python@3.11)"
  fi
  if [ -d "$home" ] && [ -n "$(ls -A "$home")" ]; then
    [ -f "$home/pyvenv.cfg" ] || [ -d "$state" ] ||
      refuse "$home is not an environment of Weir and is not empty" "WEIR_HOME names another folder"
    say "the environment in $home is unfinished or of another lock: building it again"
    rm -rf "$home"
  fi
  mkdir -p "$state"
  trap 'say "interrupted; the next start begins the environment again"; exit 130' INT TERM
  if command -v uv >/dev/null; then
    say "building the Python environment in $home with uv (about 1.3 GB, a minute or two)"
    uv venv --quiet --allow-existing --python "${base:-3.11}" "$home" >&2 ||
      refuse "uv could not create an environment with Python 3.11 (see above)"
    uv pip install --python "$python" --require-hashes -r "$lock" >&2 ||
      refuse "the packages of $(basename "$lock") could not be installed (see above)"
  else
    "$base" -c 'import venv, ensurepip' 2>/dev/null ||
      refuse "the venv module of $base is missing" \
        "$(install_hint python3.11-venv python3.11 python@3.11)"
    say "building the Python environment in $home with pip (about 1.3 GB, a few minutes)"
    "$base" -m venv "$home" >&2
    "$python" -m pip install --disable-pip-version-check --require-hashes -r "$lock" >&2 ||
      refuse "the packages of $(basename "$lock") could not be installed (see above)"
  fi
  "$python" "$here/app/stream/jars.py" > "$state/coordinates"
  trap - INT TERM
  # Last: an environment without it is unfinished.
  printf '%s\n' "$lock_hash" > "$state/lock"
  say "the Python environment is ready"
}

lock_hash=$(digest < "$lock")
prepared() { [ -x "$python" ] && [ "$(cat "$state/lock" 2>/dev/null)" = "$lock_hash" ]; }

prepare_environment() {
  prepared && return
  mkdir -p "$home"
  if command -v flock >/dev/null; then
    # Two starts at once: the second waits for the first. The lock is outside the deleted folder.
    exec 9> "$home.lock"
    flock -n 9 || { say "waiting for another start that prepares $home"; flock 9; }
    prepared || build_environment
    exec 9>&-
  else
    build_environment
  fi
}

# ---------------------------------------------------------------- Java, Spark and the jars
# The value of a conf: command line, then the properties file in force.
conf() {
  local value='' pair file
  for pair in ${confs[@]+"${confs[@]}"}; do
    [ "${pair%%=*}" != "$1" ] || value=${pair#*=}
  done
  file=${properties:-${SPARK_CONF_DIR:-${SPARK_HOME:-$here}/conf}/spark-defaults.conf}
  if [ -z "$value" ] && [ -f "$file" ]; then
    value=$(awk -v key="$1" '{ line = $0; sub(/^[ \t]+/, "", line); split(line, a, /[ \t=:]+/)
      if (a[1] == key) { sub(/^[^ \t=:]+[ \t=:]+/, "", line); print line } }' "$file" | tail -n 1)
  fi
  printf '%s' "$value"
}

coordinates() {
  cat "$state/coordinates" 2>/dev/null || "$(find_python)" "$here/app/stream/jars.py" ||
    refuse "Python 3.11 is missing" \
      "$(install_hint 'python3.11 python3.11-venv' python3.11 python@3.11)"
}

check_java() {
  local java=java version=''
  [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || true
  local hint
  hint=$(install_hint openjdk-17-jre-headless java-17-openjdk-headless openjdk@17)
  [ -n "$version" ] || refuse "Java 17 is missing${JAVA_HOME:+ in JAVA_HOME=$JAVA_HOME}" "$hint"
  if [ "$version" -lt 17 ] || [ "$version" -gt 21 ]; then
    refuse "Java $version ($java) does not fit Spark ${spark_line}: it needs 17 to 21" "$hint"
  fi
}

# Spark and Scala of SPARK_HOME must be those that the jars are built for.
check_spark_home() {
  [ -n "${SPARK_HOME:-}" ] || return 0
  [ -x "$SPARK_HOME/bin/spark-submit" ] ||
    refuse "SPARK_HOME=$SPARK_HOME has no bin/spark-submit" "unset it to use Weir's own Spark"
  local core found_scala found_spark
  core=$(cd "$SPARK_HOME/jars" 2>/dev/null && ls spark-core_*.jar 2>/dev/null | head -n 1)
  core=${core#spark-core_} core=${core%.jar}
  found_scala=${core%%-*} found_spark=${core#*-}
  case $found_scala/$found_spark in
    "$scala/$spark_line".*) ;;
    *) refuse "Spark ${found_spark:-of unknown version} with Scala ${found_scala:-unknown} in\
 SPARK_HOME=$SPARK_HOME does not fit: Weir's jars are for Spark $spark_line.x, Scala $scala" \
      "unset SPARK_HOME to use Weir's own Spark" ;;
  esac
}

prepare_jars() {
  local want
  want=$(cat "$lock" "$here/app/stream/jars.py" | digest)
  [ "$(cat "$state/jars.of" 2>/dev/null)" != "$want" ] || return 0
  say "fetching the Delta and Kafka jars of Spark into $state/jars (about 25 MB, once)"
  local key value
  for key in spark.jars.ivy spark.jars.ivySettings; do
    value=$(conf $key)
    [ -z "$value" ] || ivy+=(--conf "$key=$value")
  done
  if ! (unset SPARK_HOME; cd "$here" && SPARK_CONF_DIR=$here/conf \
      "$python" -m app.stream.jars "$state/jars" ${ivy[@]+"${ivy[@]}"} > "$state/jars.log" 2>&1); then
    grep -E 'unresolved dependency|not found|Error|Exception' "$state/jars.log" | head -n 3 >&2
    refuse "the jars could not be fetched; the whole log is $state/jars.log" \
      "behind a mirror: --repositories URL, or --conf spark.jars.ivySettings=FILE"
  fi
  printf '%s\n' "$want" > "$state/jars.of"
}

# ---------------------------------------------------------------- the compiled cores
# Compiled code is stored under a hash of its own sources (udfs/compiled_cache.py); the mark of this
# script under a hash of all, so that it does not start Python.
sources_hash() { (cd "$here" && cat app/ingest/*.py app/ingest/parsing/*.py state/*.py state/*/*.py udfs/*.py) | digest; }

cores_mark() { printf '%s\n' "$NUMBA_CACHE_DIR/complete-$(sources_hash)"; }

prepare_cores() {
  local mark
  mark=$(cores_mark)
  [ ! -e "$mark" ] || return 0
  say "compiling the cores into $NUMBA_CACHE_DIR (one to two minutes, once)"
  mkdir -p "$NUMBA_CACHE_DIR"
  (cd "$here" && "$python" -m app.setup.warm) || refuse "the cores could not be compiled (see above)"
  rm -f "$NUMBA_CACHE_DIR"/complete-*
  touch "$mark"
}

# ---------------------------------------------------------------- go
if [ -n "$help" ] || { [ -z "$command" ] && [ -z "$prepare_only$seen_spark_only" ]; }; then
  if ! prepared; then usage; exit 0; fi
fi
[ -n "$dry_run" ] || prepare_environment

export TZ=UTC OMP_NUM_THREADS=1
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$state/numba}
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}

if [ -z "$needs_spark$prepare_only" ]; then
  line=("$python" "$here/app/main.py" ${app[@]+"${app[@]}"})
  [ -z "$dry_run" ] || { print_line "${line[@]}"; exit 0; }
  case $help$command in bakeoff|what-if) prepare_cores ;; esac
  exec "${line[@]}"
fi

# Spark's own lines have the format of the command's.
previous=''
for word in ${app[@]+"${app[@]}"}; do
  case "$previous $word" in
    *' --log-format=json'|'--log-format json') export WEIR_LOG_FORMAT=json ;;
    *' --log-format=text'|'--log-format text') export WEIR_LOG_FORMAT=text ;;
  esac
  previous=$word
done

# Mistakes of the line and of the configuration: Python finds them in a second, Spark would take ten.
preflight() { WEIR_PREFLIGHT=$1 "$python" "$here/app/main.py" ${app[@]+"${app[@]}"} || exit $?; }

found=$(coordinates) || exit 2
{ read -r ours; read -r left_out; } <<< "$found"
scala=${ours#*_} scala=${scala#*_} scala=${scala%%:*}
spark_line=${ours#*_} spark_line=${spark_line%%_*}
check_java
check_spark_home
master=${master:-$(conf spark.master)}
master=${master:-${MASTER:-local[*]}}
deploy_mode=${deploy_mode:-$(conf spark.submit.deployMode)}
deploy_mode=${deploy_mode:-client}
if [ -z "$dry_run$prepare_only$seen_spark_only" ]; then
  case $deploy_mode in client) preflight here ;; *) preflight elsewhere ;; esac
fi
[ -n "$dry_run" ] || prepare_jars
if [ -n "$prepare_only" ]; then
  [ -n "$dry_run" ] || prepare_cores
  exit 0
fi

if [ -z "${SPARK_HOME:-}" ]; then
  export SPARK_HOME=$pyspark
  export SPARK_CONF_DIR=${SPARK_CONF_DIR:-$here/conf}
fi
submit=$SPARK_HOME/bin/spark-submit
if [ -n "$seen_spark_only" ]; then
  line=("$submit" ${master:+--master "$master"} ${spark[@]+"${spark[@]}"})
  [ -z "$dry_run" ] || { print_line "${line[@]}"; exit 0; }
  exec "${line[@]}"
fi

own=(--master "$master")
[ "$deploy_mode" = client ] || own+=(--deploy-mode "$deploy_mode")

# JVM options that the user's Spark settings do not already decide.
case " ${spark[*]-} " in
  *' --driver-java-options '*) user_java=1 ;;
  *) user_java=$(conf spark.driver.extraJavaOptions) ;;
esac
[ -n "$user_java" ] || own+=(--conf spark.driver.extraJavaOptions=-Xss4m)

if [ -f "$state/jars.of" ]; then
  for jar in "$state"/jars/*.jar; do jars=${jars:+$jars,}$jar; done
else
  say "not prepared yet: the line names the jars by their coordinates"
  packages=$ours${packages:+,$packages}
  own+=(--exclude-packages "$left_out")
fi

case $master in
  local*)
    export PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python
    export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
    case $command in run|demo) [ -n "$dry_run" ] || prepare_cores ;; esac
    ;;
  *)
    # What any cluster needs: sources as a zip, packages packed or already installed.
    code=$state/weir.zip
    py_files=${py_files:+$py_files,}$code
    [ -n "$dry_run" ] || "$python" -m app.setup.package code "$code"
    worker=${WEIR_WORKER_PYTHON:-$(conf spark.pyspark.python)}
    if [ -z "$worker" ]; then
      packed=$state/env-$lock_hash.tar.gz
      if [ -z "$dry_run" ] && [ ! -f "$packed" ]; then
        say "packing the environment for the workers into $packed (about 330 MB, once)"
        "$python" -m app.setup.package env "$packed"
      fi
      archives=${archives:+$archives,}$packed#env
      worker=./env/bin/weir-python
    fi
    own+=(--conf "spark.pyspark.python=$worker")
    # Compiled cores fit a worker with the same processor and packages; others compile their own.
    cores=$state/cores.tar.gz
    if [ -z "$dry_run" ]; then
      prepare_cores
      [ "$cores" -nt "$(cores_mark)" ] || "$python" -m app.setup.package cores "$cores"
    fi
    archives=${archives:+$archives,}$cores#numba-cache
    [ "$deploy_mode" = cluster ] || own+=(--conf "spark.pyspark.driver.python=$python")
    for pair in TZ=UTC OMP_NUM_THREADS=1 NUMBA_CACHE_DIR=./numba-cache; do
      own+=(--conf "spark.executorEnv.$pair")
      [ "$deploy_mode" != cluster ] ||
        own+=(--conf "spark.yarn.appMasterEnv.$pair" --conf "spark.kubernetes.driverEnv.$pair")
    done
    ;;
esac

if [ "$deploy_mode" = cluster ]; then
  # The driver runs elsewhere: the configuration travels, its policy files written into it.
  sent=()
  take_config=''
  for word in "${app[@]}"; do
    case $take_config$word in
      1*) config=$word; take_config=''; word=weir-config.yaml ;;
      --config) take_config=1 ;;
      --config=*) config=${word#*=}; word=--config=weir-config.yaml ;;
    esac
    sent+=("$word")
  done
  app=("${sent[@]}")
  if [ -n "${config:-}" ]; then
    files=${files:+$files,}$state/weir-config.yaml
    [ -n "$dry_run" ] || "$python" -m app.setup.package config "$config" "$state/weir-config.yaml"
  fi
fi

line=("$submit" "${own[@]}" ${jars:+--jars "$jars"} ${packages:+--packages "$packages"} ${py_files:+--py-files "$py_files"}
  ${archives:+--archives "$archives"} ${files:+--files "$files"} ${spark[@]+"${spark[@]}"}
  "$here/app/main.py" "${app[@]}")

if [ -n "$dry_run" ]; then
  given=()
  for name in TZ OMP_NUM_THREADS NUMBA_CACHE_DIR PYTHONPATH SPARK_HOME SPARK_CONF_DIR \
      PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON SPARK_LOCAL_IP; do
    [ -z "${!name:-}" ] || given+=("$name=${!name}")
  done
  print_line ${given[@]+"${given[@]}"} "${line[@]}"
  exit 0
fi
# In this process's place: a signal for it reaches Spark, which passes it on to the driver. Spark
# gives Python's two streams to standard output; all that a run writes there is its log.
tidy() { exec "$python" -I "$here/app/terminal/stray_lines.py" "$@" >&2; }
[ "$command" != run ] || [ ! -t 2 ] || export WEIR_TERMINAL=1
case $command/${WEIR_LOG_FORMAT:-text} in
  run/json) exec "${line[@]}" > >(tidy json) 2>&1 ;;
  run/*) exec "${line[@]}" 2> >(tidy) >&2 ;;
  *) exec "${line[@]}" 2> >(tidy) ;;
esac
