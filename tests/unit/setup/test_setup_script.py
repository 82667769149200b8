"""spark-submit.sh: the environment on first use, what is missing, and the line it runs.

Java, uv, Python and Spark are stand-ins here, so that every machine of a user can be tried; the
real ones are used by every run of the test suite itself and by tests/spark/test_cluster.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from app.cli import app
from app.setup.launch.line import WITH_SPARK
from app.setup.package import pack_config

ROOT = Path(__file__).resolve().parents[3]
TOOLS = (
    "bash",
    "sh",
    "env",
    "sed",
    "awk",
    "grep",
    "cut",
    "cat",
    "head",
    "tail",
    "dirname",
    "basename",
    "mkdir",
    "rm",
    "ls",
    "cp",
    "mktemp",
    "sha256sum",
    "flock",
    "kill",
    "sleep",
    "printf",
    "touch",
    "chmod",
)
VALIDATE = ("validate", "--config", "configs/weir.yaml")
PYTHON = f"""#!/bin/bash
# A Python 3.11 without packages of its own to install.
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; touch "$3/pyvenv.cfg" ;;
  *" pip install "*) echo "pip $*" >> "$CALLS" ;;
  "-m app.stream.jars "*)
    mkdir -p "$3"; touch "$3/delta.jar" "$3/kafka.jar"; echo jars >> "$CALLS" ;;
  "-m app.setup.warm") echo cores >> "$CALLS" ;;
  "-m app.setup.package env "*|"-m app.setup.package cores "*) touch "$4" ;;
  *) exec {shlex.quote(sys.executable)} "$@" ;;
esac
"""
UV = """#!/bin/bash
echo "uv $1" >> "$CALLS"
case "$1" in
  venv) home="${@: -1}"; mkdir -p "$home/bin"; cp "$(command -v python3.11)" "$home/bin/python"
        touch "$home/pyvenv.cfg" ;;
  pip) if [ -n "$UV_FAILS" ]; then kill -9 $PPID; fi ;;
esac
"""
SUBMIT = """#!/bin/bash
trap 'echo "batch finished"; exit 0' TERM
echo started
while :; do sleep 0.1; done
"""
DRIVER = """
import sys
from app.terminal import driver_stderr
driver_stderr.take()
print("begun", flush=True)
sys.stdin.read()
print("weir: interrupted", file=sys.stderr)
"""
JVM = f"""#!{sys.executable}
# Ends before its driver does, which has no other stream of it.
import subprocess, sys
print("before", file=sys.stderr, flush=True)
driver = subprocess.Popen(
    [sys.executable, "-c", {DRIVER!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
)
assert driver.stdout.readline() == b"begun\\n"
sys.exit(130)
"""


class Checkout:
    """A copy of what a clone has, on a machine whose programs the test chooses."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.calls = folder / "weir", folder / "bin", folder / "calls"
        for name in ("app", "state", "udfs", "conf", "configs"):
            shutil.copytree(ROOT / name, self.root / name)  # with what Python has compiled
        for name in ("spark-submit.sh", "requirements.lock"):
            shutil.copy2(ROOT / name, self.root / name)
        self.bin.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            if found:
                (self.bin / name).symlink_to(found)
        self.program("python3.11", PYTHON)
        self.program("apt-get", "#!/bin/bash\n")
        self.java("17.0.15")

    @property
    def state(self) -> Path:
        return self.root / ".venv" / "share" / "weir"

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def java(self, version: str) -> None:
        self.program("java", f"#!/bin/bash\necho 'openjdk version \"{version}\"' >&2\n")

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.root), "CALLS": str(self.calls), **more}

    def start(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        line = [str(self.root / "spark-submit.sh"), *words]
        return subprocess.run(
            line,
            env=self.environment(**more),
            cwd=self.root,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def called(self) -> list[str]:
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []

    def spark_home(self, core: str) -> str:
        home = self.root / "spark"
        (home / "bin").mkdir(parents=True)
        (home / "jars").mkdir()
        (home / "jars" / core).touch()
        (home / "bin" / "spark-submit").write_text("#!/bin/bash\n", encoding="utf-8")
        (home / "bin" / "spark-submit").chmod(0o755)
        return str(home)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def words(line: str) -> list[str]:
    """The words of a dry run after the variables."""
    found = shlex.split(line)
    return found[next(i for i, word in enumerate(found) if word.endswith("/spark-submit")) :]


def test_the_first_start_builds_the_environment_and_the_second_does_not(checkout: Checkout) -> None:
    first = checkout.start(*VALIDATE)
    assert first.returncode == 0, first.stderr
    assert "building the Python environment" in first.stderr
    installer, others, spark = checkout.called()
    assert "--require-hashes" in installer and installer.endswith("conf/installer.lock")
    assert "--require-hashes" in others and "--require-hashes" in spark
    second = checkout.start(*VALIDATE)
    assert (second.stdout, second.stderr) == (first.stdout, "")
    assert len(checkout.called()) == 3


def test_the_two_parts_of_a_lock_are_the_whole(checkout: Checkout) -> None:
    checkout.start(*VALIDATE)
    whole = (checkout.root / "requirements.lock").read_text(encoding="utf-8")
    parts = [checkout.state / name for name in ("others.lock", "spark.lock")]
    others, spark = (part.read_text(encoding="utf-8") for part in parts)
    assert spark.startswith("pyspark==") and spark.count("==") == 1 and "--hash=" in spark
    assert "pyspark==" not in others
    assert sorted((others + spark).splitlines()) == sorted(whole.splitlines())


def test_uv_is_used_where_it_is(checkout: Checkout) -> None:
    checkout.program("uv", UV)
    assert checkout.start(*VALIDATE).returncode == 0
    assert checkout.called() == ["uv venv", "uv pip", "uv pip"]


def test_an_interrupted_environment_is_built_again(checkout: Checkout) -> None:
    checkout.program("uv", UV)
    killed = checkout.start(*VALIDATE, UV_FAILS="1")
    assert killed.returncode == -signal.SIGKILL
    (checkout.root / ".venv" / "half-written").touch()
    again = checkout.start(*VALIDATE)
    assert again.returncode == 0, again.stderr
    assert "unfinished or of another lock" in again.stderr
    assert not (checkout.root / ".venv" / "half-written").exists()


def test_a_changed_lock_builds_the_environment_again(checkout: Checkout) -> None:
    checkout.start(*VALIDATE)
    with (checkout.root / "requirements.lock").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    assert "of another lock" in checkout.start(*VALIDATE).stderr
    assert len(checkout.called()) == 6


def test_an_environment_of_another_lock_by_name_is_left_alone(checkout: Checkout) -> None:
    checkout.start(*VALIDATE)
    other = checkout.root / "other.lock"
    other.write_text("pyspark==4.0.5\n", encoding="utf-8")
    refused = checkout.start(*VALIDATE, WEIR_LOCK=str(other))
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        f"weir: {checkout.root}/.venv was built from requirements.lock, not from other.lock",
        "      WEIR_LOCK names the lock, or WEIR_HOME another folder",
    ]
    assert len(checkout.called()) == 3
    assert checkout.start(*VALIDATE).returncode == 0


def test_the_python_of_an_environment_does_not_build_it_again(checkout: Checkout) -> None:
    """It goes with the environment."""
    checkout.start(*VALIDATE)
    with (checkout.root / "requirements.lock").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    own = checkout.root / ".venv/bin"
    (own / "python").unlink()
    (own / "python").symlink_to(Path(sys.executable).resolve())
    checkout.program("python3.11", "#!/bin/bash\nexit 1\n")
    again = checkout.start(*VALIDATE, PATH=f"{own}:{checkout.bin}")
    assert again.returncode == 2 and "Python 3.11 is missing" in again.stderr


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Checkout) -> None:
    precious = checkout.root / "precious"
    precious.mkdir()
    (precious / "file").touch()
    refused = checkout.start(*VALIDATE, WEIR_HOME=str(precious))
    assert refused.returncode == 2
    assert "is not an environment of Weir and is not empty" in refused.stderr
    assert (precious / "file").exists()


def test_a_missing_python_is_named_with_the_command_that_installs_it(checkout: Checkout) -> None:
    checkout.program("python3.11", "#!/bin/bash\nexit 1\n")
    refused = checkout.start(*VALIDATE)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines() == [
        "weir: Python 3.11 is missing",
        "      install it with: sudo apt-get install -y python3.11 python3.11-venv",
    ]


def test_a_missing_java_is_named_with_the_command_that_installs_it(checkout: Checkout) -> None:
    checkout.program("java", "#!/bin/bash\nexit 127\n")
    checkout.start(*VALIDATE)
    refused = checkout.start("demo")
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "weir: Java 17 is missing",
        "      install it with: sudo apt-get install -y openjdk-17-jre-headless",
    ]


@pytest.mark.parametrize("version", ["11.0.2", "25.0.1", "1.8.0_292"])
def test_a_java_that_does_not_fit_is_refused_by_name(checkout: Checkout, version: str) -> None:
    checkout.java(version)
    refused = checkout.start("--dry-run", "demo")
    assert refused.returncode == 2
    major = version.split(".")[0]
    expected = f"Java {major} (java) does not fit Spark 4.0: it needs 17 to 21"
    assert expected in refused.stderr


@pytest.mark.parametrize(
    ("core", "named"),
    [
        ("spark-core_2.12-3.5.1.jar", "Spark 3.5.1 with Scala 2.12"),
        ("spark-core_2.13-4.1.0.jar", "Spark 4.1.0 with Scala 2.13"),
    ],
)
def test_a_spark_that_does_not_fit_the_jars_is_refused_by_name(
    checkout: Checkout, core: str, named: str
) -> None:
    home = checkout.spark_home(core)
    refused = checkout.start("--dry-run", "demo", SPARK_HOME=home)
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        f"weir: {named} in SPARK_HOME={home} does not fit:"
        " Weir's jars are for Spark 4.0.x, Scala 2.13",
        "      unset SPARK_HOME to use Weir's own Spark",
    ]


def test_the_spark_of_a_cluster_is_respected(checkout: Checkout) -> None:
    home = checkout.spark_home("spark-core_2.13-4.0.2.jar")
    line = words(checkout.start("--dry-run", "demo", SPARK_HOME=home).stdout)
    assert line[0] == f"{home}/bin/spark-submit"


def test_a_dry_run_prints_the_line_that_a_run_would_execute(checkout: Checkout) -> None:
    assert checkout.start("--prepare").returncode == 0
    shown = checkout.start("--dry-run", "demo", "--out", "my demo")
    assert (shown.returncode, shown.stderr) == (0, "")
    jars = ",".join(str(checkout.state / "jars" / f"{name}.jar") for name in ("delta", "kafka"))
    home = checkout.root / ".venv" / "lib" / "python3.11" / "site-packages" / "pyspark"
    assert words(shown.stdout) == [
        f"{home}/bin/spark-submit",
        "--master",
        "local[*]",
        "--jars",
        jars,
        f"{checkout.root}/app/main.py",
        "demo",
        "--out",
        "my demo",
    ]
    assert "TZ=UTC" in shown.stdout
    assert "SPARK_LOCAL_IP=127.0.0.1" in shown.stdout


def test_jars_and_compiled_cores_are_prepared_once(checkout: Checkout) -> None:
    first = checkout.start("--prepare")
    assert first.returncode == 0, first.stderr
    assert sorted(checkout.called()[3:]) == ["cores", "jars"]
    assert checkout.start("--prepare").stderr == ""
    assert sorted(checkout.called()[3:]) == ["cores", "jars"]


def test_a_dry_run_prepares_nothing(checkout: Checkout) -> None:
    shown = checkout.start("--dry-run", "demo", "--packages", "a:b:1")
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0,a:b:1 " in shown.stdout
    assert "io.delta:delta-spark_4.0_2.13:4.4.0" in shown.stdout
    assert checkout.called() == []


def test_options_of_spark_submit_pass_through_from_both_sides_of_the_command(
    checkout: Checkout,
) -> None:
    given = (
        "--master",
        "yarn",
        "--queue",
        "streams",
        "--keytab",
        "k.tab",
        "--principal",
        "weir@X",
        "--verbose",
        "run",
        "--config",
        "c.yaml",
        "--driver-memory=3g",
        "--conf",
        "a.b=c d",
        "--properties-file",
        "p.conf",
        "--jobs",
        "rate_limits",
        "--supervise",
    )
    line = words(checkout.start("--dry-run", *given).stdout)
    main = line.index(f"{checkout.root}/app/main.py")
    assert line[main + 1 :] == ["run", "--config", "c.yaml", "--jobs", "rate_limits"]
    text = " ".join(line[:main])
    for part in (
        "--master yarn",
        "--queue streams",
        "--keytab k.tab",
        "--principal weir@X",
        "--verbose",
        "--driver-memory 3g",
        "--conf a.b=c d",
        "--properties-file p.conf",
        "--supervise",
    ):
        assert part in text


def test_lists_of_the_user_are_joined_with_ours(checkout: Checkout) -> None:
    checkout.start("--prepare")
    given = ("--jars", "x.jar", "--py-files", "u.zip", "--archives", "a.tgz#a", "--files", "f")
    line = words(checkout.start("--dry-run", "--master", "yarn", *given, "demo").stdout)
    value = {word: line[i + 1] for i, word in enumerate(line) if word.startswith("--")}
    assert value["--jars"].split(",")[0] == "x.jar"
    assert value["--py-files"] == f"u.zip,{checkout.state}/weir.zip"
    assert value["--archives"].startswith(f"a.tgz#a,{checkout.state}/env-")
    assert value["--archives"].endswith(f".tar.gz#env,{checkout.state}/cores.tar.gz#numba-cache")
    assert value["--files"] == "f"


def test_a_python_that_is_on_the_workers_is_used_instead_of_a_packed_one(
    checkout: Checkout,
) -> None:
    line = checkout.start(
        "--dry-run", "--master", "spark://m:7077", "demo", WEIR_WORKER_PYTHON="/opt/env/bin/python"
    ).stdout
    assert "--conf spark.pyspark.python=/opt/env/bin/python" in line
    assert f"--archives {checkout.state}/cores.tar.gz#numba-cache " in line


def test_the_configuration_travels_in_cluster_deploy_mode(checkout: Checkout) -> None:
    given = ("--master", "yarn", "--deploy-mode", "cluster", "run", "--config", "deep/c.yaml")
    line = words(checkout.start("--dry-run", *given).stdout)
    assert line[line.index("--files") + 1] == f"{checkout.state}/weir-config.yaml"
    assert line[-3:] == ["run", "--config", "weir-config.yaml"]
    assert "--conf spark.yarn.appMasterEnv.TZ=UTC" in " ".join(line)


def test_the_travelling_configuration_holds_the_policies_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_TEST_KEY", "the-secret")
    policy = {"scope": "topic", "name": "a/b/c", "limits": {"publishRateInMsgs": 5}}
    (tmp_path / "limits.yaml").write_text(yaml.safe_dump([policy]), encoding="utf-8")
    (tmp_path / "c.yaml").write_text(
        "policy_files: [limits.yaml]\nstorage_options: {key: '${env:WEIR_TEST_KEY}'}",
        encoding="utf-8",
    )
    pack_config(tmp_path / "c.yaml", tmp_path / "sent.yaml")
    sent = yaml.safe_load((tmp_path / "sent.yaml").read_text(encoding="utf-8"))
    assert sent["policies"] == [policy]
    assert sent["storage_options"] == {"key": "${env:WEIR_TEST_KEY}"}


def test_commands_without_spark_keep_all_their_options(checkout: Checkout) -> None:
    checkout.program("java", "#!/bin/bash\nexit 127\n")
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    for name in sorted(commands - set(WITH_SPARK)):
        given = [name, "--principal", "User:a", "--name", "x"]
        line = checkout.start("--dry-run", *given).stdout
        assert shlex.split(line) == [
            f"{checkout.root}/.venv/bin/python",
            f"{checkout.root}/app/main.py",
            *given,
        ]


def test_help_needs_no_environment(checkout: Checkout) -> None:
    shown = checkout.start("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--dry-run" in shown.stdout
    assert checkout.called() == []


def test_a_command_that_does_not_exist_is_refused_before_anything_is_prepared(
    checkout: Checkout,
) -> None:
    for name in ("rewind", "state", "compact", "bench", "runn"):
        refused = checkout.start(name, "--config", "weir.yaml")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.splitlines()[0] == f"weir: No such command '{name}'"
    assert checkout.called() == []
    assert not (checkout.root / ".venv").exists()


def test_the_script_knows_every_command(checkout: Checkout) -> None:
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    usage = checkout.start("--help").stdout
    listed = usage.partition("Commands: ")[2].partition(".")[0].split()
    assert set(listed) == commands and len(listed) == len(commands)
    for name in commands:
        assert checkout.start("--dry-run", name).returncode == 0, name


FILES = "source: {{format: files, path: {}}}\nwarehouse: w\n"


@pytest.mark.parametrize(
    ("words", "config", "says"),
    [
        (["run"], None, "source: is missing"),
        (["run", "--config", "none.yaml"], None, "none.yaml: cannot be read"),
        (
            ["run", "--config", "c.yaml"],
            "shard: 4\n" + FILES.format("."),
            "c.yaml: shard: unknown key",
        ),
        (["run", "--config", "c.yaml"], FILES.format("gone"), "source.path: gone does not exist"),
        (["run", "--config", "c.yaml", "--jobs", "x"], FILES.format("."), "--jobs x: is not a job"),
        (
            ["run", "--config", "c.yaml", "--metrics", "x"],
            FILES.format("."),
            "No such option: --metri",
        ),
        (
            ["run", "--config", "c.yaml"],
            FILES.format(".") + "alerts: {rule_files: [none.yaml]}",
            "none.yaml: cannot be read",
        ),
        (["doctor", "--config", "none.yaml"], None, "none.yaml: cannot be read"),
        (["demo", "--out", "app"], None, "--out app: is not empty and was not made by demo"),
        (["demo", "--events", "5"], None, "--events 5: this scenario needs at least"),
        (["demo", "--scenario", "real"], None, "--scenario real: is not a scenario of demo"),
        (
            ["demo", "--scenario", "real-pulsar", "--seed", "3"],
            None,
            "--seed 3: the events of real-pulsar are recorded",
        ),
        (["runn"], None, "No such command 'runn'"),
        (
            [
                "--deploy-mode",
                "cluster",
                "--master",
                "yarn",
                "run",
                "--config",
                "c.yaml",
                "--jobs",
                "x",
            ],
            FILES.format("gone"),
            "--jobs x: is not a job",
        ),
    ],
)
def test_a_mistake_is_found_before_spark_and_its_jars(
    checkout: Checkout, words: list[str], config: str | None, says: str
) -> None:
    home = Path(checkout.spark_home("spark-core_2.13-4.0.5.jar"))
    (home / "bin" / "spark-submit").write_text('#!/bin/bash\necho spark >> "$CALLS"\n')
    if config is not None:
        (checkout.root / "c.yaml").write_text(config, encoding="utf-8")
    refused = checkout.start(*words, SPARK_HOME=str(home))
    assert refused.returncode == 2
    (line,) = [line for line in refused.stderr.splitlines() if says in line]
    assert line.startswith("weir: ")
    assert [call for call in checkout.called() if not call.startswith("pip")] == []
    assert not (checkout.root / "w").exists()


def test_what_only_the_driver_of_a_cluster_can_know_is_left_to_it(checkout: Checkout) -> None:
    home = Path(checkout.spark_home("spark-core_2.13-4.0.5.jar"))
    (home / "bin" / "spark-submit").write_text('#!/bin/bash\necho spark >> "$CALLS"\n')
    (checkout.root / "c.yaml").write_text(FILES.format("/on/the/cluster"), encoding="utf-8")
    line = ["--master", "yarn", "--deploy-mode", "cluster", "run", "--config", "c.yaml"]
    started = checkout.start(*line, SPARK_HOME=str(home), WEIR_WORKER_PYTHON="python3.11")
    assert started.returncode == 0, started.stderr
    assert checkout.called()[-1] == "spark"


NOISY = """#!/bin/bash
echo "WARNING: Using incubator modules: jdk.incubator.vector" >&2
echo "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties" >&2
echo 'Setting default log level to "WARN".' >&2
echo "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory failed" >&2
echo >&2
echo '{"time": "t", "level": "INFO", "message": "started", "terminal": "'"${WEIR_TERMINAL:-no}"'"}'
printf 'a "last" line \\\\ without an end'
"""
UNAVOIDABLE = "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory failed"


def noisy(checkout: Checkout, *words: str) -> subprocess.CompletedProcess[str]:
    """A command under a Spark whose JVM and launcher print past the log."""
    home = Path(checkout.spark_home("spark-core_2.13-4.0.5.jar"))
    (home / "bin" / "spark-submit").write_text(NOISY, encoding="utf-8")
    (checkout.root / "c.yaml").write_text(FILES.format("."), encoding="utf-8")
    done = checkout.start(*words, SPARK_HOME=str(home))
    assert done.returncode == 0, done.stderr
    return done


def test_lines_that_nobody_can_act_on_are_left_out_and_others_are_not(checkout: Checkout) -> None:
    done = noisy(checkout, "demo")
    assert done.stderr.splitlines()[-2:] == [UNAVOIDABLE, ""]
    assert "incubator" not in done.stderr and "log4j" not in done.stderr
    assert "default log level" not in done.stderr
    assert done.stdout.splitlines()[-1] == 'a "last" line \\ without an end'


def test_the_log_of_a_run_is_on_standard_error(checkout: Checkout) -> None:
    done = noisy(checkout, "run", "--config", "c.yaml")
    assert done.stdout == ""
    assert "incubator" not in done.stderr
    assert '"message": "started", "terminal": "no"}' in done.stderr
    assert done.stderr.count(UNAVOIDABLE) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--config", "c.yaml", "--log-format", "json"),
        ("run", "--log-format=json", "--config", "c.yaml"),
    ],
)
def test_every_line_of_a_log_as_json_is_an_object(
    checkout: Checkout, words: tuple[str, ...]
) -> None:
    done = noisy(checkout, *words)
    assert done.stdout == ""
    log = done.stderr.splitlines()
    found = [json.loads(line) for line in log if not line.startswith("weir: ")]  # the first start
    assert {(each["level"], each["message"]) for each in found} == {
        ("WARNING", UNAVOIDABLE),
        ("INFO", "started"),
        ("WARNING", 'a "last" line \\ without an end'),
    }
    assert len(found) == 3
    assert all(re.fullmatch(r"t|[\d-]{10}T[\d:.]{12}Z", each["time"]) for each in found)


def test_a_run_on_a_terminal_knows_that_it_is_one(checkout: Checkout) -> None:
    home = Path(checkout.spark_home("spark-core_2.13-4.0.5.jar"))
    (home / "bin" / "spark-submit").write_text(NOISY, encoding="utf-8")
    (checkout.root / "c.yaml").write_text(FILES.format("."), encoding="utf-8")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [str(checkout.root / "spark-submit.sh"), "run", "--config", "c.yaml"],
        cwd=checkout.root,
        env=checkout.environment(SPARK_HOME=str(home)),
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # Linux's end of a terminal
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=20) == 0
    assert b'"message": "started", "terminal": "1"}' in shown


def test_what_the_driver_writes_after_the_jvm_has_ended_is_shown(
    checkout: Checkout, tmp_path: Path
) -> None:
    home = Path(checkout.spark_home("spark-core_2.13-4.0.5.jar"))
    (home / "bin" / "spark-submit").write_text(JVM, encoding="utf-8")
    assert checkout.start("--prepare").returncode == 0
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = checkout.start("demo", SPARK_HOME=str(home), TMPDIR=str(temporary))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines() == ["before", "weir: interrupted"]
    assert not list(temporary.iterdir())


def test_a_signal_for_the_script_reaches_spark(checkout: Checkout) -> None:
    home = Path(checkout.spark_home("spark-core_2.13-4.0.5.jar"))
    (home / "bin" / "spark-submit").write_text(SUBMIT, encoding="utf-8")
    assert checkout.start("--prepare").returncode == 0
    process = subprocess.Popen(
        [str(checkout.root / "spark-submit.sh"), "demo"],
        cwd=checkout.root,
        text=True,
        env=checkout.environment(SPARK_HOME=str(home)),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == "batch finished\n"
    assert process.returncode == 0
