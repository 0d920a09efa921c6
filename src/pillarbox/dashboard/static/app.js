// Charts of a queue's page: fetched once, then again with every sample that arrives.
"use strict";
(() => {
  for (const link of document.querySelectorAll("[data-back]")) {
    link.addEventListener("click", (event) => {
      if (history.length > 1) { event.preventDefault(); history.back(); }
    });
  }
  for (const picture of document.querySelectorAll("img[data-live]")) {
    const from = picture.getAttribute("src");
    setInterval(() => { picture.src = from + "?" + Date.now(); }, 2000);
  }
  const holder = document.querySelector("[data-series]");
  if (!holder || typeof uPlot === "undefined") return;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, size: 48 });
  const seconds = (u, values) => values.map((v) => (v === 0 ? "now" : v + " s"));
  const line = (label, name) => ({ label, stroke: colour(name), width: 2, points: { show: false } });
  const make = (element, series) => new uPlot({
    width: element.clientWidth || 300, height: 160, legend: { show: true, live: false },
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(high || 0, 1) * 1.1] } },
    axes: [{ ...axis(), values: seconds, size: 30 }, axis()],
    series: [{ label: "seconds" }, ...series],
  }, [[], ...series.map(() => [])], element);
  const depth = holder.querySelector("[data-chart=depth]");
  const rates = holder.querySelector("[data-chart=rates]");
  const charts = [
    make(depth, [line("ready", "--blue"), line("in flight", "--green"), line("scheduled", "--amber")]),
    make(rates, [line("in", "--blue"), line("out", "--green")]),
  ];
  const perSecond = (times, totals) => totals.map((value, i) => {
    if (i === 0 || value === null || totals[i - 1] === null) return null;
    return Math.max(0, (value - totals[i - 1]) / Math.max(times[i] - times[i - 1], 0.001));
  });
  const draw = async () => {
    const answer = await fetch(holder.dataset.series);
    if (!answer.ok) return;
    const [times, ready, inFlight, scheduled, , sent, done] = await answer.json();
    charts[0].setData([times, ready, inFlight, scheduled]);
    charts[1].setData([times, perSecond(times, sent), perSecond(times, done)]);
  };
  const resize = () => { charts[0].setSize({ width: depth.clientWidth, height: 160 }); charts[1].setSize({ width: rates.clientWidth, height: 160 }); };
  addEventListener("resize", resize);
  document.body.addEventListener("htmx:sseMessage", draw);
  draw();
})();
