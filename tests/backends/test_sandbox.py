"""Workers are shut in: what a hostile compiler tries (tests/support/hostile_acts.py) fails, and what a
compiler needs works.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import hostile_acts
import numpy as np
import pytest
from commands import opsieve
from isolation_drill import WALLS, succeeded
from models import X, chain
from repository import ROOT

from opsieve.backends import registry
from opsieve.backends.registry import names, plugin, resolve
from opsieve.backends.workers.sandbox import policy
from opsieve.backends.workers.sandbox.policy import describe_lacks, make_config, select_variables, switch_off
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.shared_zygotes import SharedZygotes
from opsieve.backends.workers.zygotes.zygote import Refused
from opsieve.gen.errors import BadInput

LONG = {"take_memory_by_children", "start_a_thousand_processes", "fill_the_disk"}


@pytest.fixture
def whole(workers: Workers) -> None:
    """Only where the kernel gives all of it."""
    workers.version(resolve("reference"))
    lacks = workers.get_walls()[1]
    if lacks is None or lacks:
        pytest.skip(f"not here: {lacks}")


@pytest.fixture
def fresh() -> Iterator[Workers]:
    with (
        patch.dict(registry._entries(), {hostile_acts.NAME: {hostile_acts.ENTRY.value: hostile_acts.ENTRY}}),
        patch.dict(os.environ, {hostile_acts.FACTS: "{}"}),
        Workers(zygotes=SharedZygotes()) as made,
    ):
        yield made


def test_a_hostile_compiler_reaches_nothing(tmp_path: Path, whole: None) -> None:
    acts = [name for name in hostile_acts.ACTS if name not in LONG]
    assert len(acts) >= 40
    assert succeeded(tmp_path, "all", acts)[0] == {"start_a_process"}


def promised(walls: str) -> set[str]:
    """The acts that security.md says to succeed within these walls."""
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
    section = page.partition("<!-- attacks -->")[2].partition("<!-- end of attacks -->")[0]
    rows = dict(re.findall(r"^- `(.+?)`: (.+?)(?=\n- |\n\Z)", section, re.MULTILINE | re.DOTALL))
    return {re.sub(r"\W", "_", act) for act in " ".join(rows[walls].split()).split("; ")}


# Each of the other walls stands in "all" too.
@pytest.mark.parametrize(
    "walls",
    [
        pytest.param(name, marks=() if name == "all" else pytest.mark.slow(seconds=4))
        for name in WALLS
        if name not in ("none", "filter")
    ],
)
def test_fewer_walls_hold_what_the_page_promises(walls: str, tmp_path: Path, whole: None) -> None:
    done, notes = succeeded(tmp_path, walls)
    assert done <= promised(walls), {name: notes[name] for name in done - promised(walls)}


@pytest.mark.parametrize("wall", ["namespaces", "files"])
def test_what_lacks_is_told_with_what_follows(wall: str) -> None:
    assert "a compiler can fill the disk" in describe_lacks({wall: "not permitted"})


def test_a_backend_that_starts_no_processes_cannot(fresh: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    target = resolve("hostile:start_a_process")
    assert fresh.observe(target, chain("Relu"), X, fresh=True).outputs == {"y": np.array(True)}
    if "filter" not in fresh.get_walls()[0]:
        pytest.skip("no filter of system calls")
    monkeypatch.setattr(target.backend, "starts_processes", False, raising=False)
    assert fresh.observe(target, chain("Relu"), X, fresh=True).outputs == {"y": np.array(False)}


def test_what_the_user_allows_is_reached(
    fresh: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("private")
    monkeypatch.setenv(hostile_acts.FACTS, f'{{"key": "{tmp_path / "key"}"}}')
    monkeypatch.setenv(policy.ALLOWED, f"network,{tmp_path}")
    for act in ("read_a_key_at_home", "listen_by_tcp"):
        assert fresh.observe(resolve(f"hostile:{act}"), chain("Relu"), X).outputs == {"y": np.array(True)}, (
            act
        )


def test_what_is_allowed_in_shared_memory_costs_no_wall(
    whole: None, fresh: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(policy.ALLOWED, "/dev/shm")
    assert fresh.observe(resolve("hostile:read_the_list_of_users"), chain("Relu"), X).outputs != {
        "y": np.array(True)
    }
    assert fresh.get_walls()[1] == {}


def test_a_kernel_that_gives_less_costs_a_start_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_refused", {})
    monkeypatch.setattr(policy, "_said", set())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    seen: list[set[str]] = []

    def start(walls: Any) -> Any:
        seen.append(set(walls["without"]))
        if len(seen) == 1:
            raise Refused("processes", "proc: Operation not permitted")
        return SimpleNamespace(lacks=walls["without"], uncompiled=[])

    for _ in range(2):
        policy.start_sandboxed(resolve("reference").backend, [], start, Path(sys.executable), said.append)
    assert seen == [set(), {"processes"}, {"processes"}]
    assert len(said) == 1
    assert "no processes of its own (proc: Operation not permitted)" in said[0]


def test_without_a_sandbox_there_is_none_and_the_variable_comes_back(fresh: Workers) -> None:
    backend = resolve("reference").backend
    with switch_off():
        assert make_config(backend, []) is None
        fresh.version(resolve("hostile"))
    assert fresh.get_walls() == ([], None)
    assert make_config(backend, []) is not None


SECRETS = [
    "DATABASE_URL",
    "REDIS_URL",
    "MONGO_URI",
    "AMQP_URL",
    "GH_PAT",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "GH_TOKEN",
    "JWT",
    "JWT_SECRET",
    "SENTRY_DSN",
    "DSN",
    "AWS_PROFILE",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GCP_SA_KEY",
    "DB_PASSWORD",
    "PGPASSWORD",
    "PGPASSFILE",
    "MYSQL_PWD",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "WANDB_API_KEY",
    "KAGGLE_KEY",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "GPG_AGENT_INFO",
    "KUBECONFIG",
    "DOCKER_AUTH_CONFIG",
    "VAULT_TOKEN",
    "NPM_CONFIG__AUTH",
    "PYPI_PASS",
    "TWINE_PASSWORD",
    "UV_INDEX_URL",
    "PIP_INDEX_URL",
    "HTTPS_PROXY",
    "SLACK_WEBHOOK",
    "STRIPE_SK",
    "ENCRYPTION_KEY",
    "MASTER_KEY",
    "SIGNING_KEY",
    "SESSION_COOKIE",
    "NETRC",
    "OPSIEVE_TOKEN",
    "CUDA_LICENSE_SECRET",
    "PYTHON_KEYRING_BACKEND",
]


def test_variables_are_handed_on_only_where_a_backend_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = dict.fromkeys(
        ["PATH", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "LC_ALL"],
        "x",
    )
    secret = dict.fromkeys(SECRETS, "x")
    own = {"TVM_HOME": "x", "TVM_LOG_DEBUG": "x"}
    assert select_variables({**kept, **secret, **own}, ()) == kept
    assert select_variables({**kept, **secret, **own}, plugin("tvm").facts.variables) == {**kept, **own}
    named = {policy.HANDED_ON: "GH_PAT,JWT"}
    assert select_variables({**secret, **named}, ()) == {"GH_PAT": "x", "JWT": "x", **named}
    with switch_off():
        assert select_variables(secret, ()) == secret


def test_no_backend_asks_for_a_secret() -> None:
    for name in names():
        assert not select_variables(dict.fromkeys(SECRETS, "x"), plugin(name).facts.variables), name


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize(("allowed", "bounded"), [("", True), ("/dev/shm", True), ("/dev/null", False)])
def test_where_a_device_is_let_in_addresses_are_not_bounded(
    allowed: str, bounded: bool, fresh: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(policy.ALLOWED, allowed)
    target = resolve("fake")
    assert fresh.observe(target, chain("Relu"), X).outcome == "ok"
    limits = Path(f"/proc/{fresh._workers[target].pid}/limits").read_text().splitlines()
    unlimited = {line[:26].strip() for line in limits if line[26:].split()[0] == "unlimited"}
    assert ("Max address space" not in unlimited, "Max data size" not in unlimited) == (bounded, not bounded)


@pytest.mark.parametrize("name", [policy.SWITCH, policy.ALLOWED])
def test_a_variable_that_says_nothing_known_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "perhaps")
    with pytest.raises(BadInput, match=name):
        make_config(resolve("reference").backend, [])


def test_what_lacks_is_a_sentence() -> None:
    assert describe_lacks({"landlock": "the kernel has none"}).endswith(
        "in: no Landlock (the kernel has none)"
    )


def test_the_option_runs_compilers_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(chain("Relu").model)
    with patch.object(policy, "make_config", wraps=policy.make_config) as asked:
        code, _, _ = opsieve("run", "--no-sandbox", tmp_path / "m.onnx", capsys=capsys)
    assert code == 0
    assert policy.SWITCH not in os.environ
    assert asked.call_count
