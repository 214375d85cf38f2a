"""The workflows of the repository: what they run is shell that parses, targets of make that exist, and pinned
actions.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import collection_of_one
from repository import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted((GITHUB / "workflows").glob("*.yml"))
}
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
TRIGGERS = True  # YAML 1.1 reads the key `on` so
FIRST_OF_MATRIX = {"matrix.shard": "1", "matrix.python": "3.11", "github.ref_name": "v1.2.0"}


@dataclass(frozen=True)
class Step:
    """A step that runs a command: its place, and the variables that it gets."""

    place: str
    run: str
    variables: dict[str, str]


def find_steps() -> Iterator[Step]:
    actions = {"action": {"runs": yaml.safe_load((ROOT / "action.yml").read_text())["runs"]}}
    for name, jobs in {**{name: each["jobs"] for name, each in WORKFLOWS.items()}, **actions}.items():
        for job, content in jobs.items():
            for step in content.get("steps", []):
                if "run" in step:
                    values = {key: fill_in(str(value)) for key, value in step.get("env", {}).items()}
                    yield Step(f"{name}:{job}:{step['name']}", step["run"], values)


def fill_in(text: str) -> str:
    """A text of a workflow with values for its expressions."""
    return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda found: FIRST_OF_MATRIX.get(found[1], ""), text)


STEPS = list(find_steps())


def find_uses(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        yield from ([content["uses"]] if "uses" in content else [])
        content = list(content.values())
    for each in content if isinstance(content, list) else []:
        yield from find_uses(each)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.place)
def test_a_command_is_shell_and_takes_values_from_variables_alone(step: Step) -> None:
    assert "${{" not in step.run  # a branch's name could be code
    done = subprocess.run(["bash", "-n"], input=step.run, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("step", [each for each in STEPS if "make " in each.run], ids=lambda step: step.place)
def test_a_target_of_make_exists_and_names_files_that_exist(step: Step) -> None:
    shell = 'set -euo pipefail\nmake() { command make --dry-run --no-print-directory "$@"; }\n' + step.run
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    } | step.variables
    done = subprocess.run(
        ["bash", "-c", shell], cwd=ROOT, env=variables, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    named = re.findall(r"(?<=\s)(?:tests|samples|benchmarks)/[\w./-]+", done.stdout)
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert all(value in done.stdout for name, value in step.variables.items() if name == "SHARD")


# What a job may do beside reading: publishing needs an identity, and a pull request a branch.
GRANTED = {"release:publish": {"id-token"}, "bugs:propose": {"contents", "pull-requests"}}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_only_read_and_ends(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"].startswith(f"{name}-")
    for title, job in workflow["jobs"].items():
        assert "timeout-minutes" in job or "uses" in job
        assert job.get("permissions", {}).keys() == GRANTED.get(f"{name}:{title}", set())


def test_actions_are_pinned() -> None:
    texts = [path.read_text() for path in (GITHUB / "workflows").glob("*.yml")]
    lines = [line.strip() for text in texts for line in text.splitlines() if "uses:" in line]
    local = re.compile(r"uses: \./(\.github/workflows/\w+\.yml)$")
    pinned = re.compile(r"(?:- )?uses: [\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)+$")
    published = "- uses: pypa/gh-action-pypi-publish@release/v1 #"
    assert [
        each for each in lines if not (local.match(each) or pinned.match(each) or each.startswith(published))
    ] == []
    assert all((ROOT / found[1]).exists() for each in lines if (found := local.match(each)))
    assert len(lines) == len(list(find_uses(list(WORKFLOWS.values()))))
    # one version of each
    assert len({each.partition("@")[0] + each.partition("@")[2] for each in lines}) == len(
        {each.partition("@")[0] for each in lines}
    )


def test_checks_run_on_every_python_that_a_wheel_is_compiled_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tested = WORKFLOWS["checks"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    compiled = re.findall(r"cp3(\d+)-", project["tool"]["cibuildwheel"]["build"])
    assert tested == [f"3.{minor}" for minor in compiled]
    assert project["project"]["requires-python"] == f">={tested[0]}"


def test_every_slow_test_is_scheduled() -> None:
    assert "schedule" in WORKFLOWS["slow"][TRIGGERS]
    thirds = re.search(r"% (\d+)\)", (ROOT / ".ci" / "run").read_text())
    assert thirds is not None
    shards = WORKFLOWS["slow"]["jobs"]["test"]["strategy"]["matrix"]["shard"]
    assert shards == [str(number) for number in range(int(thirds[1]))]


def test_a_release_is_published_after_all_checks() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert set(jobs["publish"]["needs"]) == jobs.keys() - {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"][
        "raw-options"
    ]
    assert WORKFLOWS["release"][TRIGGERS]["push"]["tags"] == [described["scm"]["git"]["describe_command"][-1]]


def test_pre_commit_runs_the_versions_of_make_check() -> None:
    repositories = {Path(each["repo"]).name: each for each in read_pre_commit()["repos"]}
    ruff = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert ruff is not None
    assert repositories["ruff-pre-commit"]["rev"] == f"v{ruff[1]}"
    assert [hook["entry"] for hook in repositories["local"]["hooks"]] == ["make check"]


def read_pre_commit() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    return content


@pytest.mark.parametrize(
    "path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem
)
def test_an_issue_form_has_what_github_asks_for(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= form.keys()
    ids = [each["id"] for each in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(each["type"] == "textarea" and each["attributes"]["label"] for each in form["body"])
    if path.stem != "feature":
        doctor = next(each for each in form["body"] if each["id"] == "doctor")
        assert ("opsieve doctor" in doctor["attributes"]["label"], doctor["validations"]["required"]) == (
            True,
            True,
        )


def test_dependabot_renews_the_actions() -> None:
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    assert {each["package-ecosystem"] for each in updates} == {"github-actions", "pip"}
    names = {
        name for each in updates for name in (entry["dependency-name"] for entry in each.get("allow", []))
    }
    pinned = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert names <= set(pinned)


def test_the_scheduled_replay_proposes_what_has_changed(tmp_path: Path) -> None:
    """Both commands run, on a collection of one bug, in a clone whose remote is a folder."""
    run = {step.place: step for step in STEPS}
    tools, origin, clone = tmp_path / "tools", tmp_path / "origin.git", tmp_path / "clone"
    tools.mkdir()
    (tools / "opsieve").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opsieve "$@"\n')
    (tools / "gh").write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/gh.txt"\n[ "$2" = create ]\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    collection_of_one(clone / "samples")
    (clone / "docs").mkdir()
    (clone / "docs" / "found.md").write_text("old\n")
    (clone / ".gitignore").write_text("build\n")
    variables = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }

    def call(script: str, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=clone, env=variables | more, text=True, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call(f'git init -q -b main . && git add . && git commit -qm one && git init -q --bare "{origin}"')
    call(f'git remote add origin "{origin}" && git push -q origin main')
    replay, propose = run["bugs:replay:Replay"], run["bugs:propose:Open a pull request"]
    assert "live        one  fake:wrong@Relu" in call(replay.run, **replay.variables)
    call("git checkout -q .")  # the second job has the record from the artifact alone
    call(propose.run, **propose.variables)
    assert "| fake | 1 |" in call("git show origin/bugs-replay:docs/found.md")
    assert (tmp_path / "gh.txt").read_text().splitlines() == [
        "pr view bugs-replay",
        "pr create --fill --head bugs-replay",
    ]
    # once it is merged there is nothing to propose
    call("git switch -q main && git merge -q bugs-replay && git branch -qD bugs-replay")
    call(propose.run, **propose.variables)
    assert len((tmp_path / "gh.txt").read_text().splitlines()) == 2
