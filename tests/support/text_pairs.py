"""Two texts, and recipes for comparing texts in pairs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from tests.support.recipes import recipe_of

LONG = "清晨的码头上，工人们把一箱箱茶叶搬上货船，船长站在甲板上数着数目，海鸥在桅杆之间盘旋。"
OTHER = "山谷里的小学今年只剩下十二名学生，老师每天走七里山路，从不缺席，冬天也带着一篮柴火。"

DEFAULT = recipe_of("data")
RECIPES = {
    "default": recipe_of("data"),
    # So wide that all texts are compared.
    "wide": recipe_of("data", match={"radius": 20}),
    "narrow": recipe_of("data", match={"radius": 0, "band_radius": 1, "min_similarity": 0.7}),
    "loose": recipe_of("data", match={"bands": 20, "rows": 1, "band_radius": 64}),
    "strict": recipe_of("data", match={"bands": 1, "rows": 16, "radius": 3}),
    "long": recipe_of("data", recipe={"bits": 128}),
    "numbers": recipe_of("data", match={"numbers": "distinguish"}),
    "unseen": replace(DEFAULT, matching=replace(DEFAULT.matching, radius=0, min_similarity=0.0)),
    "classic": recipe_of("data", recipe={"profile": "classic"}),
    "few terms": recipe_of("data", recipe={"min_terms": 40, "top": 20}),
}

made = cache(Fingerprinter)


def raw(text: object) -> bytes:
    return encode({"_id": 1, "data": text})
