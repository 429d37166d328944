"""Selection: which elements of a page its text is taken from, by CSS selectors."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from dedup_job.document import Unjudged


@dataclass(frozen=True)
class ElementSelection:
    """The elements that are taken, all if none are named, without those that are removed.

    ValueError for what is no CSS selector.
    """

    select: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what the parser cannot read."""
        page = LexborHTMLParser("<p>")
        for name, selectors in (("select", self.select), ("remove", self.remove)):
            for selector in selectors:
                try:
                    page.css(selector)
                except SelectolaxError:
                    msg = f"[clean] {name}: expected a CSS selector, as nav or div.share, not {selector!r}"
                    raise ValueError(msg) from None

    def __bool__(self) -> bool:
        """Return whether anything is named."""
        return bool(self.select or self.remove)

    def text_of(self, page: LexborHTMLParser) -> str:
        """Return the text of the elements, in the order of their selectors, each text once; alters the page.

        Raises Unjudged("unselected") when there is none of them.
        """
        for node in _outermost(page, self.remove):
            if node.parent is None or node.tag == "html":
                return ""
            node.decompose()
        if not self.select:
            return page.root.text() if page.root is not None else ""
        taken = _outermost(page, self.select)
        if not taken:
            raise Unjudged("unselected")
        return "\n".join(node.text() for node in taken)


def _outermost(page: LexborHTMLParser, selectors: Sequence[str]) -> list[LexborNode]:
    """Return the elements that match, without those inside of one that does."""
    found = {node.mem_id: node for selector in selectors for node in page.css(selector)}
    outside: set[int] = set()  # what is known to be inside of none, so that each is asked once
    return [node for node in found.values() if not _is_inside(node, found.keys(), outside)]


def _is_inside(node: LexborNode, found: Set[int], outside: set[int]) -> bool:
    passed = []
    parent = node.parent
    while parent is not None and parent.mem_id not in outside:
        if parent.mem_id in found:
            return True
        passed.append(parent.mem_id)
        parent = parent.parent
    outside.update(passed)
    return False
