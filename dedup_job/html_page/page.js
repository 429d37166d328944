"use strict";
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const pairs = all(".pair");
  const store = "dedup-job " + document.body.dataset.source;
  const count = (number) => Number(number).toLocaleString("en-US");

  // Labels are stored by the ids of both records, so that the next page of the same source finds them.
  const keyOf = (pair) => pair.dataset.first + "\n" + pair.dataset.second;
  const labels = new Map();
  try {
    for (const [key, label] of Object.entries(JSON.parse(localStorage.getItem(store) || "{}"))) labels.set(key, label);
  } catch { /* no storage: labels last as long as the page is open */ }

  function keep() {
    try {
      localStorage.setItem(store, JSON.stringify(Object.fromEntries(labels)));
    } catch { /* no storage */ }
  }

  function setLabel(pair, label) {
    if (label) labels.set(keyOf(pair), label);
    else labels.delete(keyOf(pair));
    keep();
    showLabel(pair);
    showBar();
  }

  function showLabel(pair) {
    for (const button of pair.querySelectorAll("[data-label]")) {
      button.setAttribute("aria-pressed", String(button.dataset.label === labels.get(keyOf(pair))));
    }
  }

  function showBar() {
    const bar = one("#bar");
    if (!bar) return;
    bar.hidden = !labels.size;
    const number = (label) => [...labels.values()].filter((one) => one === label).length;
    one("#bar-says").textContent =
      `${count(labels.size)} labelled: ${count(number("same"))} same, ${count(number("different"))} different, ` +
      `${count(number("unsure"))} unsure`;
  }

  // Save the file that `dedup-job evaluate --labels` reads.
  function save() {
    const lines = [...labels].map(([key, label]) => {
      const [id1, id2] = key.split("\n");
      return JSON.stringify({ id1, id2, label }) + "\n";
    });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
    link.download = "labels.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function forget() {
    if (!confirm("Forget all labels of this collection in this browser?")) return;
    labels.clear();
    keep();
    pairs.forEach(showLabel);
    showBar();
  }

  // The slider over the threshold.
  const line = one("#line");
  const charts = all("#similarities svg").map((svg) => [...svg.querySelectorAll(".mark-rect path")]);
  const rows = all("#threshold tr[data-at]");

  function says(row) {
    const { at, below, likely, low, high } = row.dataset;
    if (row === rows[0]) return "Nothing would change: this is the present threshold.";
    if (below === "0") return `At ${at} nothing would change: no pair is below it.`;
    const between = low === high ? "" : ` (${count(low)} to ${count(high)})`;
    return (
      `At ${at}, ${count(below)} near duplicates are less similar to their keeper. ` +
      `${low === high ? "" : "About "}${count(likely)}${between} of them would stay` +
      (likely === below ? "." : "; the others would still go, as duplicates of each other.")
    );
  }

  function moveLine() {
    const at = Number(line.value);
    const row = rows[Math.round((at - Number(line.min)) * 100)];
    one("#line-at").textContent = at.toFixed(2);
    one("#line-says").textContent = says(row);
    rows.forEach((each) => each.classList.toggle("at", each === row && row !== rows[0]));
    for (const bars of charts) { // the last bar ends at 1
      bars.forEach((bar, place) => bar.classList.toggle("stays", 100 - bars.length + place < Math.round(at * 100)));
    }
    for (const pair of pairs) {
      pair.classList.toggle("above", pair.dataset.similarity !== "" && Number(pair.dataset.similarity) < at);
    }
  }

  // Filter the pairs, show some of them and more on demand, and move between them by keyboard.
  const portion = 30;
  let most = portion;
  let matching = pairs;

  function filter() {
    const wanted = new Set(all("[data-only]:checked").map((box) => box.dataset.only));
    matching = pairs.filter(
      (pair) =>
        !(wanted.has("numbers") && !("numbers" in pair.dataset)) &&
        !(wanted.has("unlabelled") && labels.has(keyOf(pair))),
    );
    most = portion;
    showPairs();
  }

  function showPairs() {
    if (!pairs.length) return;
    const shown = new Set(matching.slice(0, most));
    pairs.forEach((pair) => (pair.hidden = !shown.has(pair)));
    const rest = matching.length - shown.size;
    one("#shown-count").textContent = `${count(shown.size)} of ${count(matching.length)} shown`;
    one("#more").hidden = !rest;
    one("#next").textContent = `Show ${count(Math.min(portion, rest))} more`;
    one("#every").textContent = `Show all ${count(matching.length)}`;
  }

  // A link to a pair leads to it, even if that pair is not shown yet.
  function showLinked() {
    const place = matching.indexOf(document.getElementById(location.hash.slice(1)));
    if (place < most) return;
    most = place + 1;
    showPairs();
    pairs.find((pair) => "#" + pair.id === location.hash).scrollIntoView();
  }

  function go(step) {
    const at = matching.indexOf(document.activeElement.closest(".pair"));
    const place = at < 0 ? 0 : Math.min(matching.length - 1, Math.max(0, at + step));
    const next = matching[place];
    if (!next) return;
    if (place >= most) {
      most = place + portion;
      showPairs();
    }
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "start" });
  }

  const keys = { s: "same", d: "different", u: "unsure", x: "" };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=range]")) return;
    if (event.key === "j" || event.key === "k") go(event.key === "j" ? 1 : -1);
    const pair = document.activeElement.closest(".pair");
    if (!pair || !(event.key in keys)) return;
    setLabel(pair, keys[event.key]);
    if (keys[event.key]) go(1);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "save") save();
    else if (button.id === "next" || button.id === "every") {
      most = button.id === "next" ? most + portion : Infinity;
      showPairs();
    }
    else if (button.id === "forget") forget();
    else if (button.dataset.label) {
      const pressed = button.getAttribute("aria-pressed") === "true";
      setLabel(button.closest(".pair"), pressed ? "" : button.dataset.label);
    }
  });

  document.addEventListener("change", (event) => {
    const only = event.target.dataset.only;
    if (!only) return;
    all(`[data-only="${only}"]`).forEach((box) => (box.checked = event.target.checked));
    filter();
  });

  if (line) {
    line.addEventListener("input", moveLine);
    moveLine();
  }
  window.addEventListener("beforeprint", () => all("details").forEach((each) => (each.open = true)));
  window.addEventListener("hashchange", showLinked);
  pairs.forEach(showLabel);
  showPairs();
  showLinked();
  showBar();
})();
