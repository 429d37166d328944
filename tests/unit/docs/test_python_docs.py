"""The examples of docs/how-to/use-from-python.md run unchanged."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import HANG_SECONDS

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-from-python.md"


def example(heading: str, **names: Any) -> dict[str, Any]:
    """Run the example under a heading and return its names."""
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(compile(code, heading, "exec"), names)
    return names


def test_the_example_of_a_list_holds(capsys: pytest.CaptureFixture[str]) -> None:
    made = example("A list")
    assert made["unique"] == [made["texts"][0], made["texts"][3]]
    assert capsys.readouterr().out == "1 exact of 0\n2 near of 0\n"


def test_the_example_of_a_pandas_column_holds() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    made = example("A pandas column")
    assert list(made["unique"].index) == [10, 12]
    assert made["dropped"]["keeper"].to_dict() == {11: 10}


def test_the_example_of_a_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(example("Keep it for the next process")["pages"]) == ["a"]


@pytest.fixture
def handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPConnection]:
    monkeypatch.chdir(tmp_path)
    made = example("A web handler", __name__="pages")
    with ThreadingHTTPServer(("127.0.0.1", 0), made["Pages"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = HTTPConnection(*server.server_address, timeout=HANG_SECONDS)
        yield connection
        connection.close()
        server.shutdown()


def test_the_example_of_a_web_handler_holds(handler: HTTPConnection) -> None:
    def asked(method: str, path: str, body: str = "") -> tuple[int, Any]:
        handler.request(method, path, body.encode())
        answer = handler.getresponse()
        return answer.status, json.loads(answer.read())

    text = "The ferry to the islands leaves at nine; tickets are sold at the pier, cash only."
    assert asked("POST", "/a", text) == (200, {"kept": True, "keeper": None})
    assert asked("POST", "/b", f"<p>{text}</p>") == (200, {"kept": False, "keeper": "a"})
    assert asked("POST", "/a", text) == (409, {})
    assert asked("DELETE", "/a") == (200, {})
    assert asked("DELETE", "/a") == (404, {})
    assert asked("POST", "/b", text) == (200, {"kept": True, "keeper": None})
