// What the page gains where scripts run: a hover that finds the nearest mark, tables that sort, cases that filter.
(() => {
  "use strict";
  const hover = document.createElement("div");
  hover.id = "hover";
  hover.hidden = true;
  hover.setAttribute("aria-hidden", "true");
  document.body.append(hover);
  const REACH = 40;

  const marksOf = (chart) => [...chart.querySelectorAll(".series title")].map((title) => {
    const box = title.parentNode.getBoundingClientRect();
    return { text: title.textContent, x: box.left + box.width / 2, y: box.top + box.height / 2, box };
  });
  const distance = (mark, x, y) => {
    const inside = x >= mark.box.left && x <= mark.box.right && y >= mark.box.top && y <= mark.box.bottom;
    return inside ? Math.min(mark.box.width, mark.box.height) / 4 : Math.hypot(mark.x - x, mark.y - y);
  };
  for (const chart of document.querySelectorAll("svg.chart")) {
    let marks = [];
    chart.addEventListener("pointerenter", () => { marks = marksOf(chart); });
    chart.addEventListener("pointermove", (event) => {
      let nearest = null, least = REACH;
      for (const mark of marks) {
        const away = distance(mark, event.clientX, event.clientY);
        if (away < least) [nearest, least] = [mark, away];
      }
      hover.hidden = !nearest;
      if (!nearest) return;
      hover.textContent = nearest.text;
      const left = Math.min(nearest.x + 10, document.documentElement.clientWidth - hover.offsetWidth - 8);
      hover.style.left = `${Math.max(4, left) + scrollX}px`;
      hover.style.top = `${nearest.y - hover.offsetHeight - 8 + scrollY}px`;
    });
    chart.addEventListener("pointerleave", () => { hover.hidden = true; });
  }

  const PREFIXES = { T: 1e12, G: 1e9, M: 1e6, k: 1e3, m: 1e-3, "µ": 1e-6, n: 1e-9 };
  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const key = (row, column) => {
      const text = row.cells[column].textContent.trim();
      const value = parseFloat(text.replaceAll(",", ""));
      const unit = PREFIXES[/^\S+\s([TGMkmµn])(s|J|B(\/\S+)?)$/.exec(text)?.[1]] ?? 1;
      return Number.isNaN(value) ? text : value * unit;
    };
    const compare = (a, b) => {
      const [first, second] = [a[0], b[0]], [one, other] = [typeof first === "number", typeof second === "number"];
      if (one && other) return first - second;
      return one === other ? first.localeCompare(second) : one ? -1 : 1;
    };
    const sort = (column, descending) => {
      const rows = [...body.rows].map((row) => [key(row, column), row]).sort(compare);
      if (descending) rows.reverse();
      body.append(...rows.map(([, row]) => row));
      heads.forEach((head, place) => {
        if (place !== column) head.removeAttribute("aria-sort");
        else head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      });
    };
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => sort(column, head.getAttribute("aria-sort") === "ascending"));
      head.replaceChildren(button);
      head.removeAttribute("tabindex"); // the button is what keys reach
    });
    return sort;
  };

  const cases = document.querySelector("table.cases");
  if (cases) {
    const sort = sortable(cases);
    const rows = [...cases.tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const labelled = (name, control) => {
      const label = document.createElement("label");
      label.append(`${name} `, control);
      return label;
    };
    const search = document.createElement("input");
    search.type = "search";
    search.id = "filter";
    const verdict = document.createElement("select");
    verdict.id = "verdict";
    const found = rows.map((row) => row.querySelector(".badge").textContent.trim());
    for (const name of ["all", ...new Set(found)]) verdict.add(new Option(name));
    const order = document.createElement("select");
    order.id = "order";
    order.add(new Option("as given", ""));
    [...cases.tHead.rows[0].cells].forEach((head, column) => order.add(new Option(head.textContent, column)));
    const status = document.createElement("span");
    status.setAttribute("role", "status");
    let cell = ""; // the field of the fleet's table whose cases are shown
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, place) => {
        const fits = words.every((word) => texts[place].includes(word));
        row.hidden = !(fits && (!cell || row.dataset.cell === cell) && (verdict.value === "all" || found[place] === verdict.value));
        shown += !row.hidden;
      });
      status.textContent = `${shown} of ${rows.length} cases`;
    };
    const show = (field, kind) => {
      [cell, verdict.value] = [field, kind];
      filter();
    };
    search.addEventListener("input", () => show("", verdict.value));
    verdict.addEventListener("change", () => show("", verdict.value));
    for (const link of document.querySelectorAll("a[data-cell]")) {
      link.addEventListener("click", () => {
        search.value = "";
        show(link.dataset.cell, link.dataset.verdict);
      });
    }
    order.addEventListener("change", () => {
      if (order.value) sort(Number(order.value), false);
      else cases.tBodies[0].append(...rows);
    });
    const tools = document.createElement("div");
    tools.className = "tools";
    tools.append(labelled("Filter", search), labelled("Verdict", verdict), labelled("Order", order), status);
    cases.before(tools);
    filter();
    // a link to a row that the filter hides shows it again
    addEventListener("hashchange", () => {
      const target = document.getElementById(location.hash.slice(1));
      if (target?.hidden) {
        search.value = "";
        show("", "all");
        target.scrollIntoView();
      }
    });
  }
  document.querySelectorAll("table.data").forEach(sortable);
})();
