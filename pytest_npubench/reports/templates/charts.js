// Draws the charts one after the other, in the colours of the page, and all of them again when those change.
(() => {
  "use strict";
  const charts = [...document.querySelectorAll(".chart")];
  const waiting = [...charts];

  const themed = (figure) => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const lines = { gridcolor: color("--grid"), zerolinecolor: color("--line"), linecolor: color("--line") };
    const hoverlabel = { bgcolor: color("--card"), bordercolor: color("--line"), font: { color: color("--text") } };
    const layout = {
      ...figure.layout,
      autosize: true,
      paper_bgcolor: "rgba(0, 0, 0, 0)",
      plot_bgcolor: "rgba(0, 0, 0, 0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("--text") },
      hoverlabel: { ...figure.layout.hoverlabel, ...hoverlabel },
    };
    for (const axis of ["xaxis", "yaxis"]) layout[axis] = { ...lines, ...figure.layout[axis] };
    return { data: figure.data, layout };
  };

  const draw = (chart) => {
    const figure = themed(JSON.parse(document.getElementById(chart.dataset.figure).textContent));
    Plotly.react(chart, figure.data, figure.layout, { responsive: true, displayModeBar: false });
  };

  // a pause after each chart, so that a page of fifty can be scrolled while it draws
  const drawNext = () => {
    if (!waiting.length) return;
    draw(waiting.shift());
    setTimeout(drawNext);
  };

  drawNext();
  addEventListener("beforeprint", () => waiting.splice(0).forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    charts.filter((chart) => !waiting.includes(chart)).forEach(draw);
  });
})();
