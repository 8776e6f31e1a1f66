window.kafkaTxnTables = () => document.querySelectorAll(".kafka-txn:not([data-ready])").forEach((root) => {
  root.dataset.ready = "1";
  const table = root.querySelector("table");
  if (!table) return;
  const SIZE = 50, FEW = 10;
  const count = (number) => number.toLocaleString("en");
  // controls are made here: where scripts do not run, as in a notebook that is not trusted, there are none
  table.querySelectorAll("th").forEach((heading) => {
    heading.innerHTML = `<button type="button">${heading.innerHTML}</button>`;
  });
  root.insertAdjacentHTML("afterbegin", `<div class="bar" hidden>
    <input type="search" placeholder="Search all ${count(Number(root.dataset.count))} rows" aria-label="Search all rows">
    <span class="place" role="status"></span>
    <button type="button" class="back" aria-label="Previous rows">&#8592;</button>
    <button type="button" class="on" aria-label="Next rows">&#8594;</button>
    <button type="button" class="csv">CSV</button></div>`);
  const bar = root.querySelector(".bar"), search = bar.querySelector("input"), place = bar.querySelector(".place");
  const [back, on, csv] = ["back", "on", "csv"].map((name) => bar.querySelector("." + name));
  let all = Array.from(table.tBodies), sorted = all, rows = all, first = 0, sort = null;

  const unpack = async () => {  // the rows after the first page
    const packed = root.dataset.rest;
    if (!packed) return;
    delete root.dataset.rest;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const rest = document.createElement("table");
    rest.innerHTML = await new Response(stream).text();
    all = all.concat(Array.from(rest.tBodies));
    sorted = rows = all;
  };
  const copyable = (body) => body.querySelectorAll("code.command:not(:has(+ .copy))").forEach((line) => {
    line.insertAdjacentHTML("afterend", '<button type="button" class="copy">Copy</button>');
  });
  table.addEventListener("click", async (event) => {
    if (event.target.className !== "copy") return;
    await navigator.clipboard.writeText(event.target.previousElementSibling.textContent);
    event.target.textContent = "Copied";
  });
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = words.length ? sorted.filter((body) => {
      const text = body.textContent.toLowerCase();
      return words.every((word) => text.includes(word));
    }) : sorted;
    first = Math.max(0, Math.min(first, Math.floor((rows.length - 1) / SIZE) * SIZE));
    const shown = rows.slice(first, first + SIZE);
    Array.from(table.tBodies).forEach((body) => body.remove());
    shown.forEach((body) => { copyable(body); table.appendChild(body); });
    place.textContent = rows.length
      ? `${count(first + 1)} to ${count(first + shown.length)} of ${count(rows.length)}` : "no such row";
    back.disabled = first === 0;
    on.disabled = first + SIZE >= rows.length;
  };
  const key = (body, column, isNumber) => {
    const cell = body.rows[0].cells[column], text = cell.dataset.key ?? cell.textContent;
    return cell.dataset.none !== undefined ? undefined : !isNumber ? text : /^-?\d+$/.test(text) ? BigInt(text) : Number(text);
  };
  const sortBy = (heading) => {
    const column = heading.cellIndex, isNumber = heading.dataset.number, up = heading.ariaSort !== "ascending";
    table.querySelectorAll("th").forEach((each) => each.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    sorted = all.map((body) => [key(body, column, isNumber), body]).sort(([x], [y]) => {
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      return (x === y ? 0 : x > y ? 1 : -1) * (up ? 1 : -1);
    }).map(([, body]) => body);
    first = 0;
  };
  const text = (cell, heading) => {
    if (cell.dataset.none !== undefined) return "";
    if (heading && heading.dataset.time) return new Date(Number(cell.dataset.key)).toISOString();
    const lines = Array.from(cell.children, (line) => Array.from(line.childNodes).filter(
      (part) => part.className !== "copy").map((part) => part.textContent.trim()).join(" "));
    return lines.length ? lines.join("; ") : cell.textContent;
  };
  const save = () => {
    const headings = Array.from(table.tHead.rows[0].cells);
    // a spreadsheet runs a text that begins so, and whoever chooses a transactional id chooses the text
    const safe = (value) => (/^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? "'" : "") + value;
    const quoted = (value) => `"${safe(value).replaceAll('"', '""')}"`;
    const lines = rows.map((body) => Array.from(body.rows).flatMap(
      (row) => Array.from(row.cells, (cell) => quoted(text(cell, row === body.rows[0] && headings[cell.cellIndex])))));
    const below = rows.some((body) => body.rows.length > 1) ? ["details"] : [];
    lines.unshift([...headings.map((heading) => heading.textContent.trim()), ...below].map(quoted));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.map((line) => line.join(",") + "\n").join("")], { type: "text/csv" }));
    link.download = `${root.dataset.table}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const after = (change) => async () => { await unpack(); change(); draw(); };

  table.tHead.addEventListener("click", (event) => {
    const heading = event.target.closest("th");
    if (heading) after(() => sortBy(heading))();
  });
  search.addEventListener("input", after(() => { first = 0; }));
  back.addEventListener("click", after(() => { first -= SIZE; }));
  on.addEventListener("click", after(() => { first += SIZE; }));
  csv.addEventListener("click", after(save));
  root.querySelectorAll(".still").forEach((note) => note.remove());
  all.forEach(copyable);
  if (all.length > FEW) {
    bar.hidden = false;
    unpack().then(draw);
  }
});
window.kafkaTxnTables();
