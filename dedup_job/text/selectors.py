"""Select the elements of a page whose text is used, by CSS selectors."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from dedup_job.document import Unjudged


@dataclass(frozen=True)
class ElementSelection:
    """The elements whose text is used: all if none are named, without the removed ones.

    Args:
        select: CSS selectors of elements to use.
        remove: CSS selectors of elements to remove first.

    Raises:
        ValueError: If a selector is not valid CSS.
    """

    select: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the selectors by running each on an empty page."""
        page = LexborHTMLParser("<p>")
        for name, selectors in (("select", self.select), ("remove", self.remove)):
            for selector in selectors:
                try:
                    page.css(selector)
                except SelectolaxError:
                    msg = f"[clean] {name}: expected a CSS selector, as nav or div.share, not {selector!r}"
                    raise ValueError(msg) from None

    def __bool__(self) -> bool:
        """Return whether any selector is given."""
        return bool(self.select or self.remove)

    def text_of(self, page: LexborHTMLParser) -> str:
        """Return the text of the selected elements, in the order of their selectors, each element once.

        Removes elements from the page.

        Raises:
            Unjudged: `unselected` if no element matches `select`.
        """
        for node in _find_outermost(page, self.remove):
            # lexbor cannot remove the root of a page: nothing is left of it.
            if node.parent is None or node.tag == "html":
                return ""
            node.decompose()
        if not self.select:
            return page.root.text() if page.root is not None else ""
        selected = _find_outermost(page, self.select)
        if not selected:
            raise Unjudged("unselected")
        return "\n".join(node.text() for node in selected)


def _find_outermost(page: LexborHTMLParser, selectors: Sequence[str]) -> list[LexborNode]:
    """Return the elements that match a selector, without elements inside another match."""
    # Each node is a new Python object; mem_id is the address of lexbor's node.
    matches = {node.mem_id: node for selector in selectors for node in page.css(selector)}
    outside: set[int] = set()
    return [node for node in matches.values() if not _is_inside(node, matches.keys(), outside)]


def _is_inside(node: LexborNode, matches: Set[int], outside: set[int]) -> bool:
    """Return whether an ancestor of the node matches too.

    Args:
        outside: Ancestors known to be in no match. The function adds to them, so that each is visited once
            and the time stays linear.
    """
    visited = []
    parent = node.parent
    while parent is not None and parent.mem_id not in outside:
        if parent.mem_id in matches:
            return True
        visited.append(parent.mem_id)
        parent = parent.parent
    outside.update(visited)
    return False
