"""What a command line becomes: the line of spark-submit, or a command in this process."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
import yaml

from app.cli import app
from app.cli import main as program
from app.errors import UserError
from app.jars import client_jar
from app.jvm import POLLS_ALONE
from app.setup.launch.home import ROOT, Home
from app.setup.launch.line import COMMANDS, ON_SPARK, read
from app.setup.launch.machine import require_spark_home
from app.setup.launch.start import main
from app.setup.launch.submission import ONE_COMPILER, SMALL_HEAP, Submission
from app.setup.package import pack_config


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An environment on a machine without settings for Spark, with jars."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "MASTER", "WEIR_WORKER_PYTHON", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WEIR_JARS", str(tmp_path / "jars"))
    (tmp_path / "jars").mkdir()
    for name in ("delta.jar", "kafka.jar"):
        (tmp_path / "jars" / name).touch()
    return Home.of_environment(tmp_path)


def line_of(home: Home, *words: str) -> list[str]:
    return Submission(read(words), home, prepares=False).words()


def values(line: list[str]) -> dict[str, str]:
    return {word: line[i + 1] for i, word in enumerate(line) if word.startswith("--")}


def test_the_program_has_the_commands_of_the_list() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(commands) == sorted(COMMANDS)


def test_a_dry_run_prints_the_line_that_a_run_would_execute(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert main(["--dry-run", "demo", "--out", "my demo"], home) == 0
    shown = shlex.split(capsys.readouterr().out)
    begin = next(i for i, word in enumerate(shown) if word.endswith("/spark-submit"))
    assert {"TZ=UTC", "SPARK_LOCAL_IP=127.0.0.1"} <= set(shown[:begin])
    assert shown[begin:] == [
        f"{home.pyspark}/bin/spark-submit",
        "--master",
        "local[*]",
        "--conf",
        "spark.driver.extraJavaOptions=-Xss4m -XX:TieredStopAtLevel=1",
        "--jars",
        f"{tmp_path}/jars/delta.jar,{tmp_path}/jars/kafka.jar",
        f"{ROOT}/app/main.py",
        "demo",
        "--out",
        "my demo",
    ]


def test_jars_that_are_not_fetched_yet_are_named_by_their_coordinates(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_JARS", "")
    assert values(line_of(home, "--packages", "a:b:1", "demo"))["--packages"].split(",") == [
        "io.delta:delta-spark_4.0_2.13:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "a:b:1",
    ]


def test_every_option_of_spark_submit_passes_through(home: Home) -> None:
    passed = (
        *("--queue", "streams", "--keytab", "k.tab", "--verbose", "--driver-memory=3g"),
        *("--conf", "a.b=c d", "--properties-file", "p.conf", "--supervise"),
    )
    given = ("run", "--config", "c.yaml", "--jobs", "rate_limits")
    line = line_of(home, "--master", "yarn", *passed, *given)
    main_at = line.index(f"{ROOT}/app/main.py")
    assert line[main_at + 1 :] == [*given]
    assert line[main_at - len(passed) : main_at] == [*passed]
    assert values(line)["--master"] == "yarn"
    assert line_of(home, "--master", "spark://m:6066", "--kill", "driver-1")[1:] == [
        *("--master", "spark://m:6066", "--kill", "driver-1")
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rewind"], "No such command 'rewind'\n--help lists the commands"),
        (["--master", "local", "runn"], "No such command 'runn'"),
        (["--queue", "x"], "--queue: no command follows"),
        (["--conf", "run"], "--conf needs a value"),
        (["--master"], "--master needs a value"),
        (["--remote", "sc://h", "run"], "--remote: Weir needs a classic Spark session"),
        (["run", "--master=yarn"], "--master=yarn: options of spark-submit go before run"),
    ],
)
def test_a_mistake_in_a_line_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(UserError) as refused:
        read(words)
    assert says in str(refused.value)


def test_lists_of_the_user_are_joined_with_weirs(home: Home) -> None:
    given = ("--jars", "x.jar", "--py-files", "u.zip", "--archives", "a.tgz#a", "--files", "f")
    found = values(line_of(home, "--master", "yarn", *given, "demo"))
    assert found["--jars"].split(",")[0] == "x.jar"
    assert found["--py-files"] == f"u.zip,{home.data}/weir.zip"
    assert found["--archives"].startswith(f"a.tgz#a,{home.data}/env-")
    assert found["--archives"].endswith(f".tar.gz#env,{home.data}/cores.tar.gz#numba-cache")
    assert found["--files"] == "f"


def test_a_python_that_is_on_the_workers_is_used_instead_of_a_packed_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_WORKER_PYTHON", "/opt/env/bin/python")
    line = line_of(home, "--master", "spark://m:7077", "demo")
    assert "spark.pyspark.python=/opt/env/bin/python" in line
    assert values(line)["--archives"] == f"{home.data}/cores.tar.gz#numba-cache"


def test_the_configuration_travels_in_cluster_deploy_mode(home: Home) -> None:
    given = ("--master", "yarn", "--deploy-mode", "cluster", "run", "--config", "deep/c.yaml")
    line = line_of(home, *given)
    assert values(line)["--files"] == f"{home.data}/weir-config.yaml"
    assert line[-2:] == ["--config", "weir-config.yaml"]
    assert "spark.yarn.appMasterEnv.TZ=UTC" in line


def test_the_jar_of_kafkas_client_is_on_no_class_path_and_travels_to_a_driver(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "jars/kafka-client/org.apache.kafka_kafka-clients-4.4.0.jar"
    jar.parent.mkdir()
    jar.touch()
    elsewhere = ("--master", "yarn", "--deploy-mode", "cluster", "run", "--config", "c.yaml")
    for words in (("run",), elsewhere):
        submission = Submission(read(words), home, prepares=False)
        given = values(submission.words())
        assert given["--jars"] == f"{tmp_path}/jars/delta.jar,{tmp_path}/jars/kafka.jar"
        assert submission.environment["WEIR_JARS"] == f"{tmp_path}/jars"
        assert (str(jar) in given.get("--files", "")) is (words is elsewhere)
    assert client_jar() == jar
    # The driver has it in its folder.
    monkeypatch.delenv("WEIR_JARS")
    (tmp_path / "driver").mkdir()
    sent = jar.rename(tmp_path / "driver" / jar.name)
    monkeypatch.chdir(tmp_path / "driver")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "none"))
    assert client_jar() == sent
    monkeypatch.chdir(tmp_path)
    assert client_jar() is None


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


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(ON_SPARK)))
def test_commands_without_spark_keep_all_their_options(
    name: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [name, "--principal", "User:a", "--name", "x", "--dry-run"]
    assert main(["--dry-run", *given], home) == 0
    assert shlex.split(capsys.readouterr().out) == [home.python, f"{ROOT}/app/main.py", *given]


@pytest.mark.parametrize(
    ("words", "on_spark"),
    [
        (["replay", "--out", "o"], False),
        (["--master", "local[*]", "replay", "--out", "o"], True),
        (["--master", "spark://m:7077", "policy", "diff", "a", "b", "--on", "all"], True),
        (["--master", "spark://m:7077", "policy", "show", "t"], False),
        (["--conf", "spark.executor.memory=4g", "replay", "--out", "o"], False),
        (["--master", "local[*]", "replay", "--help"], False),
    ],
)
def test_a_replay_runs_on_spark_where_the_line_has_a_master(
    words: list[str], on_spark: bool
) -> None:
    assert read(words).needs_spark is on_spark


@pytest.mark.parametrize(
    ("core", "named"),
    [
        ("spark-core_2.12-3.5.1.jar", "Spark 3.5.1 with Scala 2.12"),
        ("spark-core_2.13-4.1.0.jar", "Spark 4.1.0 with Scala 2.13"),
        ("spark-core_2.13-4.0.2.jar", None),
    ],
)
def test_a_spark_that_does_not_fit_the_jars_is_refused_by_name(
    tmp_path: Path, core: str, named: str | None
) -> None:
    for path in ("bin/spark-submit", f"jars/{core}"):
        (tmp_path / "spark" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "spark" / path).touch(0o755)
    if named is None:
        require_spark_home(f"{tmp_path}/spark", "4.0", "2.13")
        return
    with pytest.raises(UserError) as refused:
        require_spark_home(f"{tmp_path}/spark", "4.0", "2.13")
    assert str(refused.value).splitlines() == [
        f"{named} in SPARK_HOME={tmp_path}/spark does not fit:"
        " Weir's jars are for Spark 4.0.x, Scala 2.13",
        "unset SPARK_HOME to use Weir's own Spark",
    ]


def test_the_spark_of_a_cluster_is_respected(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert line_of(home, "demo")[0] == "/opt/spark/bin/spark-submit"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("demo",), "-Xss4m -XX:TieredStopAtLevel=1"),
        (("run", "--config", "w.yaml", "--available-now"), "-Xss4m -XX:TieredStopAtLevel=1"),
        (("run", "--config", "w.yaml"), None),
        (("--master", "spark://a:1", "demo"), None),
        (("--conf", "spark.driver.extraJavaOptions=-Xss8m", "demo"), None),
        (("--driver-java-options", "-Xss8m", "demo"), None),
    ],
)
def test_what_ends_by_itself_runs_without_javas_second_compiler(
    home: Home, words: Sequence[str], options: str | None
) -> None:
    line = line_of(home, *words)
    weirs = line[: line.index(f"{ROOT}/app/main.py")]
    given = [word for word in weirs if word.startswith("spark.driver.extraJavaOptions=")]
    assert [word.partition("=")[2] for word in given if word not in words] == (
        [options] if options else []
    )


@pytest.mark.parametrize("master", ["local[2]", "spark://a:1"])
def test_a_run_that_only_polls_has_a_small_jvm(
    home: Home, monkeypatch: pytest.MonkeyPatch, master: str, tmp_path: Path
) -> None:
    config = tmp_path / "w.yaml"
    feed = "{format: kafka_groups, options: {kafka.bootstrap.servers: 'k:9'}}"
    config.write_text(f"warehouse: {tmp_path}/w\nsource: {feed}\n")
    monkeypatch.setenv("WEIR_PREFLIGHT", "elsewhere")
    assert program(["run", "--config", str(config)]) == POLLS_ALONE
    config.write_text(f"warehouse: {tmp_path}/w\nsource: [{{format: files, path: in}}, {feed}]\n")
    assert program(["run", "--config", str(config)]) == 0
    asked = read(["--master", master, "run", "--config", "w.yaml"])
    submission = Submission(asked, home, prepares=False, polls_alone=True)
    line, here = submission.words(), master.startswith("local")
    options = " ".join(["-Xss4m", ONE_COMPILER, *SMALL_HEAP])
    for option in (f"spark.driver.extraJavaOptions={options}", "spark.python.worker.reuse=false"):
        assert (option in line) == here
    assert submission.environment.get("MALLOC_ARENA_MAX") == ("1" if here else None)


@pytest.mark.parametrize("given", ["--properties-file", "SPARK_CONF_DIR"])
def test_java_options_in_a_file_of_the_user_stay(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text("spark.driver.extraJavaOptions -Xss8m\n", encoding="utf-8")
    if given == "SPARK_CONF_DIR":
        monkeypatch.setenv(given, str(tmp_path))
    line = line_of(home, *((given, str(file)) if given[0] == "-" else ()), "demo")
    assert not any("extraJavaOptions=" in word for word in line)
