"""A collection of bugs with one case, on a compiler with seeded faults."""

from pathlib import Path

from models import X, chain

from opsieve.gen.case.case import Case, save
from opsieve.triage.corpus.corpus_file import Bug, CorpusEntry, write_corpus

FAILS = "fake:wrong@Relu"


def collection_of_one(folder: Path, fails: str = FAILS) -> None:
    """Make the collection in `folder`; its bug `one` has no record yet."""
    folder.mkdir(parents=True)
    save(Case(chain("Relu", "Exp"), X), folder / "one")
    bug = Bug(fails, "fake", "Relu is wrong.", ("Exp", "Relu"), ("reference",), "Relu")
    write_corpus(folder, {"one": CorpusEntry("0" * 64, {}, bug)})
