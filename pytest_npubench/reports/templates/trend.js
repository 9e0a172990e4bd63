// Draws the trends of a case: medians by night, levels, what the gate said, accepted windows, the stack's changes.
(() => {
  "use strict";
  const PLOT_HEIGHT = 220, ROW_HEIGHT = 15, MOST_ROWS = 4, MOST_CHARACTERS = 36, RADIUS = 2.5;
  const KEY = /^(driver|firmware|runtime|compiler|\w+_policy) /; // what results may not differ in to be compared
  const SAID = { r: "regressed", i: "improved", u: "unchanged", "?": "inconclusive" };
  const TONES = { r: "bad", i: "good" };
  const NARROWEST = 280, NUM_TICKS = 5, TICK_WIDTH = 110, LOG_FROM = 3;

  const read = (group) => {
    let at = 0, revision = "";
    const nights = group.nights.map(([later, host, changed]) => {
      at += later * 1e3;
      revision = changed === 0 ? revision : changed;
      return { at, host: group.hosts[host], revision };
    });
    return { nights, stack: new Map(group.stack), series: group.series };
  };
  const groups = JSON.parse(document.getElementById("data").textContent).map(read);
  const of = (element) => {
    const group = groups[element.dataset.group];
    return { group, series: group.series[element.dataset.series] };
  };

  const number = (series, value) => String(+(value * series.times).toPrecision(4));
  const figure = (series, value) => `${number(series, value)} ${series.unit}`.trim();
  const moment = (night) => new Date(night.at).toISOString().slice(0, 16).replace("T", " ");
  const sentence = (group, series, place) => {
    const night = group.nights[place];
    const accepted = series.accepted.some((places) => places.includes(place));
    const about = [SAID[series.said[place]], accepted && "accepted", night.revision && `commit ${night.revision}`];
    const head = `${moment(night)} ${night.host}: ${figure(series, series.values[place])}`;
    return [[head, ...about.filter(Boolean)].join(", "), ...group.stack.get(place) ?? []].join("; ");
  };

  const draw = (parent, name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    parent.append(made);
    return made;
  };
  const ticksOf = (low, high, isLog) => {
    if (isLog) {
      const decade = 10 ** Math.floor(Math.log10(low)), ticks = [];
      for (let tick = decade; tick <= high; tick *= 10) ticks.push(tick, 2 * tick, 5 * tick);
      return ticks.filter((tick) => tick >= low && tick <= high);
    }
    const rough = (high - low) / NUM_TICKS, decade = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * decade).find((size) => size >= rough * 0.999);
    return Array.from({ length: NUM_TICKS + 2 }, (_, place) => (Math.ceil(low / step) + place) * step)
      .filter((tick) => tick <= high);
  };
  // the text of each change of the stack, with its row: those of the key first, then the newest; -1: there is no room
  const labels = (group, x, width, character) => {
    const taken = Array.from({ length: MOST_ROWS }, () => []);
    const isMinor = ([, lines]) => !KEY.test(lines[0]);
    return [...group.stack].sort((a, b) => isMinor(a) - isMinor(b) || b[0] - a[0]).map(([place, lines]) => {
      const more = lines.length > 1 ? ` +${lines.length - 1}` : "";
      const line = lines[0].replace(" -> ", " → "), room = MOST_CHARACTERS - more.length;
      const text = (line.length > room ? `${line.slice(0, room - 1)}…` : line) + more;
      const begin = Math.max(0, Math.min(x(place), width - text.length * character));
      const end = begin + (text.length + 1) * character;
      const row = taken.findIndex((texts) => texts.every(([from, to]) => end < from || begin > to));
      if (row >= 0) taken[row].push([begin, end]);
      return { place, text, begin, row };
    });
  };

  const widthOf = (svg) => Math.max(svg.clientWidth, NARROWEST);
  const chart = (svg) => {
    const { group, series } = of(svg), { nights } = group, width = widthOf(svg);
    const { unit, times } = series, character = 0.56 * parseFloat(getComputedStyle(svg).fontSize);
    const places = series.values.flatMap((value, place) => value === null ? [] : [place]);
    const values = places.map((place) => series.values[place]);
    let low = Math.min(...values), high = Math.max(...values);
    const isLog = low > 0 && high / low > LOG_FROM, room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
    [low, high] = isLog ? [low / 1.1, high * 1.1] : [low - room, high + room];
    const scaled = (value) => isLog ? Math.log(value) : value;
    const ticks = ticksOf(low * times, high * times, isLog).map((tick) => [tick / times, number(series, tick / times)]);
    const left = 14 + character * Math.max(1, ...ticks.map(([, text]) => text.length)), right = width - 8;
    const [first, last] = [nights[0].at, nights.at(-1).at];
    const x = (place) => last === first ? (left + right) / 2
      : left + 6 + (right - left - 12) * (nights[place].at - first) / (last - first);
    const changed = labels(group, x, right, character);
    const top = ROW_HEIGHT * (2 + Math.max(-1, ...changed.map(({ row }) => row))), bottom = top + PLOT_HEIGHT;
    const y = (value) => bottom - PLOT_HEIGHT * (scaled(value) - scaled(low)) / (scaled(high) - scaled(low));
    const path = (name, d) => draw(svg, "path", { class: name, d });

    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 24}`);
    for (const window of series.accepted) {
      const levels = window.map((place) => y(series.values[place]));
      const [above, below] = [Math.min(...levels) - 3, Math.max(...levels) + 3];
      path("band", `M${x(window[0]) - 4} ${above}H${x(window.at(-1)) + 4}V${below}H${x(window[0]) - 4}Z`);
    }
    const grid = draw(svg, "g", { class: "grid" });
    for (const [tick, text] of ticks) {
      draw(grid, "path", { d: `M${left} ${y(tick)}H${right}` });
      draw(svg, "text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, text);
    }
    draw(svg, "text", { x: 0, y: top - 6 }, unit);
    const count = last === first ? 0 : Math.max(1, Math.floor((right - left) / TICK_WIDTH));
    for (let place = 0; place <= count; place++) {
      const at = last === first ? x(0) : left + 6 + (right - left - 12) * place / count;
      const text = new Date(first + (last - first) * place / (count || 1)).toISOString().slice(0, 10);
      const anchor = !count ? "middle" : place === 0 ? "start" : place === count ? "end" : "middle";
      draw(svg, "text", { x: at, y: bottom + 18, "text-anchor": anchor }, text);
    }
    path("axis", `M${left} ${top}V${bottom}H${right}`);
    for (const { place, row } of changed) path("stack", `M${x(place)} ${row < 0 ? top : ROW_HEIGHT * row + 4}V${bottom}`);
    for (const { text, begin, row } of changed) {
      if (row >= 0) draw(svg, "text", { class: "stack", x: begin + 3, y: ROW_HEIGHT * row + 14 }, text);
    }
    for (const [begin, end, level] of series.levels) path("level", `M${x(begin)} ${y(level)}H${x(end)}`);
    path("line", `M${places.map((place) => `${x(place).toFixed(1)} ${y(series.values[place]).toFixed(1)}`).join("L")}`);
    const marks = draw(svg, "g", { class: "series" });
    const accepted = new Set(series.accepted.flat());
    for (const place of places) {
      const tone = TONES[series.said[place]] ?? "", kept = accepted.has(place) ? "accepted" : "";
      const at = { cx: x(place).toFixed(1), cy: y(series.values[place]).toFixed(1), r: tone ? RADIUS + 1 : RADIUS };
      draw(draw(marks, "circle", { class: `mark ${tone} ${kept}`, ...at }), "title", {}, sentence(group, series, place));
    }
    for (const [place, percent, tone, says] of series.changes) {
      const end = x(place) > width / 2 ? "end" : "start", at = x(place) + (end === "end" ? -6 : 6);
      path(`begins ${tone}`, `M${x(place)} ${top}V${bottom}`);
      draw(svg, "text", { class: `begins ${tone}`, x: at, y: bottom - 8, "text-anchor": end }, percent || says);
    }
  };

  const numbers = (details) => {
    const { group, series } = of(details), table = document.createElement("table");
    table.className = "data changes";
    const row = (part, kind, cells) => {
      const made = part.insertRow();
      for (const text of cells) made.append(Object.assign(document.createElement(kind), { textContent: text }));
    };
    row(table.createTHead(), "th", ["session", "host", "commit", series.name, "gate", "stack"]);
    const body = table.createTBody();
    for (let place = group.nights.length - 1; place >= 0; place--) {
      if (series.values[place] === null) continue;
      const night = group.nights[place], stack = (group.stack.get(place) ?? []).join("; ");
      const said = SAID[series.said[place]] ?? "";
      row(body, "td", [moment(night), night.host, night.revision, figure(series, series.values[place]), said, stack]);
    }
    const box = Object.assign(document.createElement("div"), { className: "scroll", tabIndex: 0 });
    box.append(table);
    details.append(box);
  };

  const redrawn = new ResizeObserver((sizes) => {
    for (const { target } of sizes) if (target.viewBox.baseVal.width !== widthOf(target)) chart(target);
  });
  const charts = [...document.querySelectorAll("svg.chart")];
  const begin = (svg) => {
    if (svg.childElementCount) return;
    chart(svg);
    redrawn.observe(svg);
  };
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) begin(target);
  }, { rootMargin: "400px" });
  for (const svg of charts) seen.observe(svg);
  addEventListener("beforeprint", () => charts.forEach(begin));
  for (const details of document.querySelectorAll("details[data-series]")) {
    details.addEventListener("toggle", () => { if (!details.querySelector("table")) numbers(details); });
  }
})();
