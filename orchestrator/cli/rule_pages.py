"""The rules of the audits' verdicts in their pages of `docs`, written from the code.

`python -m orchestrator.cli.rule_pages docs` writes them between the two marks of each page that has them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.spec import audits
from tasks.rules import Rules

BEGIN = "<!-- the rules, from here on written by `make docs` -->\n"
END = "<!-- up to here -->\n"


def write_pages(folder: Path) -> None:
    """Write the rules of every audit that has some into its page in this folder."""
    for name in audits.names():
        audit, page = audits.find(name).audit, folder / f"{name}.md"
        if audit.wording.rules is not None and page.exists():
            page.write_text(rewrite(page.read_text(), audit.wording.rules, audit.config()))


def rewrite(page: str, rules: Rules[object], config: object) -> str:
    """A page with the rules between its two marks, at the numbers of the config.

    ValueError where the page lacks the marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no {BEGIN.strip()!r} with {END.strip()!r} below it; the page needs both")
    listed = "\n".join(rules.format_list(config))
    return f"{before}{BEGIN}\n{listed}\n\n{END}{after}"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
