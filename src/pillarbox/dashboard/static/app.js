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
  const all = document.querySelector("[data-select-all]");
  if (all) {
    const boxes = [...document.querySelectorAll("#selection input[name=id]")];
    all.form.addEventListener("change", (event) => {
      if (event.target === all) for (const box of boxes) box.checked = all.checked;
      const checked = boxes.filter((box) => box.checked).length;
      all.checked = checked === boxes.length;
      all.indeterminate = checked > 0 && !all.checked;
      all.setCustomValidity("");
    });
    all.form.addEventListener("submit", (event) => {
      if (boxes.some((box) => box.checked)) return;
      event.preventDefault();
      event.stopPropagation();  // nothing to confirm
      all.setCustomValidity("Select messages first.");
      all.reportValidity();
    });
  }
  const sorts = [...document.querySelectorAll("thead a")];  // one stop for Tab; arrows move within
  sorts.forEach((link, at) => {
    link.tabIndex = at ? -1 : 0;
    link.addEventListener("keydown", (event) => {
      const to = sorts[at + { ArrowLeft: -1, ArrowRight: 1 }[event.key]];
      if (!to) return;
      event.preventDefault();
      link.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    });
  });
  addEventListener("submit", (event) => {
    const asking = event.submitter && event.submitter.closest("[data-confirm]");
    if (asking && !confirm(asking.dataset.confirm)) event.preventDefault();
  });
  const holder = document.querySelector("[data-series]");
  if (!holder || typeof uPlot === "undefined") return;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, size: 56 });
  const ago = (v) => (v === 0 ? "now" : v % 3600 === 0 ? v / 3600 + " h" : v % 60 === 0 ? v / 60 + " min" : v + " s");
  const times = (u, values) => values.map((v) => (v > 0 ? "" : ago(v)));
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const counts = (u, values) => values.map((v) => compact.format(v));
  const steps = [1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200];
  const line = (label, name) => ({ label, stroke: colour(name), width: 2, points: { show: false } });
  const make = (element, series) => new uPlot({
    width: element.clientWidth || 300, height: 160, legend: { show: true, live: false },
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(high || 0, 1) * 1.1] } },
    axes: [{ ...axis(), values: times, incrs: steps, space: 60, size: 30 }, { ...axis(), values: counts }],
    padding: [8, 24, 0, 0],
    series: [{ label: "seconds" }, ...series],
  }, [[], ...series.map(() => [])], element);
  const depth = holder.querySelector("[data-chart=depth]");
  const rates = holder.querySelector("[data-chart=rates]");
  const charts = [
    make(depth, [line("ready", "--blue"), line("in flight", "--green"), line("scheduled", "--amber")]),
    make(rates, [line("in", "--blue"), line("out", "--green")]),
  ];
  const draw = async () => {
    const answer = await fetch(holder.dataset.series);
    if (!answer.ok) return;
    const [when, ready, inFlight, scheduled, sent, done] = await answer.json();
    charts[0].setData([when, ready, inFlight, scheduled]);
    charts[1].setData([when, sent, done]);
  };
  const resize = () => { charts[0].setSize({ width: depth.clientWidth, height: 160 }); charts[1].setSize({ width: rates.clientWidth, height: 160 }); };
  addEventListener("resize", resize);
  document.body.addEventListener("htmx:sseMessage", (event) => { if (event.detail.type === "figures") draw(); });
  draw();
})();
