"""What happens to short, odd and mixed texts under the default profile: a table of pairs and verdicts.

The second text of a pair is decided after the first: "exact" and "near" drop it, "unique" keeps both, and a
reason passes it.
"""

from __future__ import annotations

from functools import cache

import pytest
from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.keepers import Keepers
from dedup_job.pipeline.job import decide_in_memory
from dedup_job.records import Batch
from tests.support.recipes import recipe_of

NEWS = (
    "市政府昨日宣布，将在未来三年内新建十二条公交线路，覆盖"
    "城北与城东的主要居民区，预计每日可运送乘客四十万人次。"
)
ENGLISH = "The committee will publish its final report on water quality in the northern lakes before May."
TEMPLATE = "尊敬的客户您好，您的订单已经发货，请注意查收，有问题请联系客服。物品：{}，收件人：{}。"
QUESTION = (
    "已知集合A中有{}个元素，集合B中有{}个元素，且两个集合的交集中有{}个元素，求两个集合的并集中元素的个数。"
)
FORMULA = "f(x) = {}x^2 + {}x + {}, x ∈ R"
TRADITIONAL = (
    "市政府昨日宣佈，將在未來三年內新建十二條公交線路，覆蓋"
    "城北與城東的主要居民區，預計每日可運送乘客四十萬人次。"
)
POEM = "山前流水绕孤村，细雨斜风过柳门。昨夜灯花开又落，一窗明月照黄昏。溪头钓叟归来晚，袖里梅香带雪痕。"

PAIRS = [
    ("the same text", NEWS, NEWS, "exact"),
    ("in other markup", NEWS, f"<p>{NEWS[:20]}<b>{NEWS[20:]}</b></p><!-- x -->", "exact"),
    ("in full-width letters", "ＡＢＣ１２３，价格", "ABC123,价格", "exact"),
    ("other punctuation and case", ENGLISH, ENGLISH.upper().replace(".", "!"), "near"),
    ("one word changed in a news item", NEWS, NEWS.replace("四十万", "五十万"), "near"),
    ("one word changed in English", ENGLISH, ENGLISH.replace("final", "first"), "near"),
    ("another news item", NEWS, "气象台今晨发布大风预警，沿海地区午后阵风可达九级，请减少外出。", "unique"),
    ("traditional and simplified characters", NEWS, TRADITIONAL, "unique"),
    ("one template, other contents", TEMPLATE.format("紫砂茶壶一套", "欧阳明月，杭州市西湖区龙井路"),
     TEMPLATE.format("儿童自行车", "诸葛长风，成都市武侯区锦里街道"), "unique"),
    ("a poem with one character changed", POEM, POEM.replace("孤村", "山村"), "near"),
    ("another poem", POEM, "长亭外晚风拂面，古道边芳草连天。故人一去无消息，独对寒江。", "unique"),
    ("an exam question, one number", QUESTION.format(5, 7, 3), QUESTION.format(5, 7, 4), "near"),
    ("two words", "谢谢 大家", "谢谢 大家", "exact"),
    ("two other words", "谢谢 大家", "谢谢 各位", "unique"),
    ("one character", "好", "好", "exact"),
    ("another character", "好", "坏", "unique"),
    ("digits alone", "13800138000", "13800138000", "exact"),
    ("other digits", "13800138000", "13900139000", "unique"),
    ("formulas", FORMULA.format(1, 2, 3), FORMULA.format(4, 5, 6), "unique"),
    ("emoji", "😀😀😀 👍", "😀😀😀 👍", "exact"),
    ("other emoji", "😀😀😀 👍", "😭😭😭 👎", "unique"),
    ("punctuation alone", "？？？", "？？？", "exact"),
    ("other punctuation", "？？？", "！！！", "unique"),
    ("one character 100,000 times", "的" * 100_000, "的" * 100_000, "exact"),
    ("another character 100,000 times", "的" * 100_000, "了" * 100_000, "unique"),
    ("one character, once more", "的" * 100_000, "的" * 100_001, "near"),
    ("nothing", "", "", "empty"),
    ("markup without text", "<p></p>", "<p></p>", "empty"),
    ("white space", " \n", " \n", "empty"),
    ("mixed languages", f"{NEWS} {ENGLISH}", f"{NEWS} {ENGLISH}".replace("未来", "今后"), "near"),
    ("a short text in a long one", POEM, NEWS + POEM, "unique"),
]  # fmt: skip


@cache
def recipe(numbers: str = "ignore") -> Recipe:
    return recipe_of("text", match={"numbers": numbers})


@pytest.fixture(scope="module")
def fingerprinter() -> Fingerprinter:
    return Fingerprinter(recipe())


def verdict(made: Recipe, ready: Fingerprinter, first: str, second: str) -> str:
    prints = ready([encode({"_id": n, "text": text}) for n, text in enumerate((first, second))])
    keepers = Keepers(made, 1 << 20)
    ids = [b"first", b"second"]
    return decide_in_memory(Batch(ids, ids), prints, made.matching, keepers).verdicts[1].reason or "unique"


@pytest.mark.parametrize(
    ("first", "second", "expected"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS]
)
def test_odd_texts_get_the_verdict_of_the_table(
    fingerprinter: Fingerprinter, first: str, second: str, expected: str
) -> None:
    assert verdict(recipe(), fingerprinter, first, second) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (QUESTION.format(5, 7, 3), QUESTION.format(5, 7, 4), "unique"),
        (QUESTION.format(5, 7, 3), QUESTION.format(5, 7, 3), "exact"),
        (QUESTION.format(5, 7, 3), QUESTION.format(5, 7, 3).replace("已知", "设"), "near"),
        (QUESTION.format(5, 7, 3), QUESTION.format(7, 5, 3), "unique"),
        (NEWS, NEWS.replace("四十万", "五十万"), "near"),
        (QUESTION.format("10²", 7, 3), QUESTION.format(102, 7, 3), "unique"),
        (QUESTION.format("2½", 7, 3), QUESTION.format("21/2", 7, 3), "unique"),
        (QUESTION.format("10<sup>2</sup>", 7, 3), QUESTION.format(102, 7, 3), "unique"),
        (QUESTION.format("10<sup>2</sup>", 7, 3), QUESTION.format("10²", 7, 3), "exact"),
        (QUESTION.format("１２", 7, 3), QUESTION.format(12, 7, 3), "exact"),
        (QUESTION.format(" .5", 7, 3), QUESTION.format(" 5", 7, 3), "unique"),
        (QUESTION.format("（.5）", 7, 3), QUESTION.format("（5）", 7, 3), "unique"),
        (QUESTION.format("x.5", 7, 3), QUESTION.format("x5", 7, 3), "near"),
        (QUESTION.format("...5", 7, 3), QUESTION.format("5", 7, 3), "near"),
        (QUESTION.format("❶", 7, 3), QUESTION.format("❷", 7, 3), "unique"),
    ],
)
def test_texts_whose_numbers_differ_are_kept_apart_where_that_is_wanted(
    first: str, second: str, expected: str
) -> None:
    made = recipe("distinguish")
    assert verdict(made, Fingerprinter(made), first, second) == expected
