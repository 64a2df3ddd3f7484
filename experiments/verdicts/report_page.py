"""The page of results with the claims that were judged from the same runs."""

from pathlib import Path

from ares.model.errors import BadInput
from ares.platform.replacement import replace_file
from ares.results.database import opened
from ares.results.page import JudgedClaim, render
from experiments.verdicts.claim import sources
from experiments.verdicts.evaluate import FigureRow, evaluate
from experiments.verdicts.reproduction import measured_text
from experiments.verdicts.rows import DATABASE, read_rows


def write_report(results: Path) -> Path:
    """Write RESULTS/report.html from the database of results, and return its path."""
    page = results / "report.html"
    rows, _ = read_rows(results)
    with opened(results / DATABASE) as database:
        text = render(database, DATABASE, lambda done, total, name: None, judged_claims(rows))
    write_whole(page, text.encode())
    return page


def judged_claims(rows: list[FigureRow]) -> list[JudgedClaim]:
    """Return the claims of which at least one comparison was measured."""
    verdicts = [(source, evaluate(claim, rows)) for source in sources() for claim in source.claim]
    return [
        JudgedClaim(
            verdict.claim.scenario,
            f"{source.short}, {', '.join(verdict.claim.at)}",
            verdict.claim.claim,
            verdict.claim.published,
            measured_text(verdict).replace("**", ""),
            verdict.word,
        )
        for source, verdict in verdicts
        if verdict.measured
    ]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole. Raises :class:`BadInput` on failure, and leaves the old content."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}; it is as it was") from error
