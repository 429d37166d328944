"""Records that arrive late, for tests of nightly runs."""

from __future__ import annotations

POOL = [
    f"{chr(0x4E00 + 97 * n) * 3}的第{n * 7919}次旅行从{chr(0x5000 + 89 * n) * 4}开始，一路向北。"
    for n in range(40)
]
