"""Texts that would do harm, or hide something, on a page that does not escape them."""

from __future__ import annotations

HOSTILE = {
    "script": "<script>document.title = 'run'; fetch('http://127.0.0.1:9/script')</script>",
    "end of script": "</script><script>document.title = 'run'</script>",
    "end of style": "</style><style>body { display: none }</style>",
    "image": '<img src="http://127.0.0.1:9/image" onerror="document.title = \'run\'">',
    "quotes": "\" onmouseover=\"document.title = 'run'\" data-x='",
    "link": '<a href="javascript:document.title = 1">look</a><iframe src="http://127.0.0.1:9/frame"></iframe>',
    "style": "<link rel=stylesheet href=http://127.0.0.1:9/style><meta http-equiv=refresh content=0>",
    "template": "{{ 7 * 7 }} {% for x in range(9) %}{{ x }}{% endfor %} {# gone #} ${7*7} <%= 7*7 %>",
    "entities": "&lt;b&gt; &amp;amp; &#60;script&#62;",
    "comment": "<!-- --><!--><!--->--!> ]]> <![CDATA[ x ]]>",
    "bidi": "price \u202e001\u202c and \u2066isolated\u2069 and \u200f",
    "controls": "null \x00, bell \x07, escape \x1b[31m, delete \x7f",
    "widthless": "zero\u200bwidth\u00adhyphen\ufeffmark\u2060",
    "surrogate": "half \ud83d of a pair",
    "separators": "line \u2028 and paragraph \u2029",
    "svg": "<svg onload=\"document.title = 'run'\"><script>document.title = 'run'</script></svg>",
    "form": '<form action="http://127.0.0.1:9/form"><input autofocus onfocus="document.title = 1"></form>',
    "base": '<base href="http://127.0.0.1:9/">',
    "long line": "a" * 1_000_000,
    "long Chinese line": "好" * 300_000,
    "long line of marks": "<" * 300_000,
}
