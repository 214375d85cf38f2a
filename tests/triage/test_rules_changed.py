"""What `opsieve triage --refingerprint` tells of a store that other rules made."""

import json
import shutil
from pathlib import Path

import pytest
from commands import opsieve
from stores import done, filled, finding

from opsieve.triage.store.queries import Queries


def test_what_would_move_is_told_with_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if the rules of before had counted a frame that does not count any more, and made two clusters of
    one bug.
    """
    tests = [done(number, finding("no kernel", frames=["main", "fg"[number % 2]])) for number in range(3)]
    store = filled(tmp_path / "s", tests)
    with Queries(store) as queries:
        [one, other] = (store / queries.cluster(name).representative for name in ("c1", "c2"))
    shutil.rmtree(other / "observations")
    shutil.copytree(one / "observations", other / "observations")
    code, out, _ = opsieve("triage", store, "--refingerprint", "--dry-run", "--json", capsys=capsys)
    assert code == 0
    [move] = json.loads(out)["moves"]
    assert (move["failures"], move["cluster"], move["to_cluster"]) == (1, "c2", "c1")
    assert move["differences"] == [
        {"name": "frames", "before": "g.py g < main.py main", "after": "f.py f < main.py main"}
    ]
    code, out, _ = opsieve("triage", store, "--refingerprint", "--dry-run", capsys=capsys)
    assert out.splitlines() == [
        f"1 of c2 ({move['title'][:60]}) to c1 ({move['to_title'][:60]}): {move['reason']}",
        "    frames was g.py g < main.py main",
        "            is f.py f < main.py main",
        "1 kept failure with a new fingerprint: 0 stay in the same cluster, 1 moves to another",
    ]
    assert opsieve("triage", store, "--refingerprint", capsys=capsys)[0] == 0
    with Queries(store) as queries:
        assert {row.id: row.members for row in queries.clusters(sort="id").rows} == {"c1": 3}
