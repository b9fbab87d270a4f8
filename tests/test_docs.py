"""The documentation names what is there: files behind links, and the functions that a run passes through."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HOP = re.compile(r"^\| (\d+) \| `(?:\w+\.)?(\w+)`.*\| (?:`([\w/.]+)`|〃) \|$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, part in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{target} is not there"
        assert not part or part in parts_of(found), f"{target} has no part #{part}"


def parts_of(page: Path) -> set[str]:
    """The names that a reader of Markdown gives to headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_hops_of_a_run_are_functions_of_the_files_that_are_named_and_marker_txt_is_no_later_than_the_fifteenth() -> None:
    hops = HOP.findall((ROOT / "docs" / "architecture.md").read_text())
    assert [int(number) for number, _, _ in hops] == list(range(1, 18))
    file = ""
    for number, function, named in hops:
        file = named or file
        assert f"def {function}(" in (ROOT / file).read_text(), f"hop {number}: {file} has no {function}"
    assert [int(number) for number, function, _ in hops if function == "move_marker"] == [15]
