"use strict";
(() => {
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  for (const part of all("#filter, .scripted, .tools")) part.hidden = false;

  // The filter.
  const words = document.getElementById("words"), differs = document.getElementById("differs");
  const texts = new Map();
  for (const row of all("tbody tr[data-run]")) texts.set(row.dataset.run, row.textContent.toLowerCase());
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const part of all("[data-run]")) {
      const text = texts.get(part.dataset.run) || "";
      const fits = wanted.every((word) => text.includes(word)) && !(differs.checked && !("differs" in part.dataset));
      part.hidden = !fits;
      if (fits && part.tagName === "TR") shown += 1;
    }
    document.getElementById("count").textContent = shown + " of " + texts.size + " shown";
  };
  words.addEventListener("input", filter);
  differs.addEventListener("change", filter);
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  filter();

  // A link to a run opens it.
  const open = () => {
    const part = location.hash.startsWith("#run-") && document.getElementById(location.hash.slice(1));
    const run = part && part.closest("details");
    if (run) { run.open = true; run.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();
  addEventListener("beforeprint", () => { const part = document.getElementById("tip"); part.hidden = true; });

  // Zooming widens the drawing: all its places are percentages.
  const label = (ms, step) => Number(ms.toFixed(Math.max(0, Math.min(6, Math.ceil(-Math.log10(step)))))) + " ms";
  const redraw = (chart) => {
    const scroller = chart.querySelector(".scroller"), svg = scroller.firstElementChild, ticks = svg.querySelector(".ticks");
    const from = +chart.dataset.from, length = chart.dataset.to - from, width = svg.clientWidth || 1;
    const left = from + length * scroller.scrollLeft / width, right = left + length * scroller.clientWidth / width;
    const raw = (right - left) / Math.max(2, scroller.clientWidth / 110), ten = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= raw);
    // The text of a bar that begins at the left of what is shown moves into sight.
    for (const text of all("g > svg:not(.note) > text", svg)) {
      const bar = text.parentElement, start = width * parseFloat(bar.getAttribute("x")) / 100;
      const hidden = scroller.scrollLeft - start, length = width * parseFloat(bar.getAttribute("width")) / 100;
      text.setAttribute("x", hidden > 0 && hidden < length ? hidden + 4 : 4);
    }
    ticks.replaceChildren();
    for (let at = Math.ceil(left / step) * step; at <= right; at += step) {
      const x = 100 * (at - from) / length + "%";
      for (const [name, more] of [["line", { x1: x, x2: x, y1: 16, y2: "100%" }], ["text", { x, y: 11 }]]) {
        const part = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const key in more) part.setAttribute(key, more[key]);
        if (name === "text") part.textContent = label(at, step);
        ticks.append(part);
      }
    }
  };
  const zoom = (chart, times, at = 0.5) => {
    const scroller = chart.querySelector(".scroller"), svg = scroller.firstElementChild;
    const old = svg.clientWidth, point = at * scroller.clientWidth;
    const place = (scroller.scrollLeft + point) / old;
    const least = Math.max(scroller.clientWidth, 736);
    const width = Math.min(Math.max(old * times, least), least * 3000);
    svg.style.width = width + "px";
    scroller.scrollLeft = place * width - point;
    redraw(chart);
  };
  const focus = (chart) => {
    const [from, to] = chart.dataset.focus.split(" ").map(Number);
    const scroller = chart.querySelector(".scroller"), svg = scroller.firstElementChild;
    zoom(chart, scroller.clientWidth / (to - from) / svg.clientWidth);
    scroller.scrollLeft = from * svg.clientWidth;
    redraw(chart);
  };
  const whole = (chart) => { chart.querySelector(".scroller").firstElementChild.style.width = ""; redraw(chart); };
  for (const chart of all(".chart")) {
    const scroller = chart.querySelector(".scroller");
    chart.addEventListener("click", (event) => {
      const way = event.target.dataset.zoom;
      if (way === "in") zoom(chart, 2);
      if (way === "out") zoom(chart, 0.5);
      if (way === "all") whole(chart);
      if (way === "focus") focus(chart);
    });
    scroller.addEventListener("keydown", (event) => {
      if (event.key === "+" || event.key === "=") zoom(chart, 2);
      else if (event.key === "-") zoom(chart, 0.5);
      else if (event.key === "0") whole(chart);
      else return;
      event.preventDefault();
    });
    scroller.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = scroller.getBoundingClientRect();
      zoom(chart, event.deltaY < 0 ? 1.4 : 1 / 1.4, (event.clientX - box.left) / box.width);
    }, { passive: false });
    scroller.addEventListener("scroll", () => redraw(chart));
    let grip = null;
    scroller.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0) grip = event.clientX + scroller.scrollLeft;
    });
    addEventListener("pointermove", (event) => {
      if (grip === null) return;
      scroller.classList.add("drag");
      scroller.scrollLeft = grip - event.clientX;
    });
    addEventListener("pointerup", () => { grip = null; scroller.classList.remove("drag"); });
    chart.closest("details.run").addEventListener("toggle", () => redraw(chart));
  }

  // What is under the pointer. The browser's own tip is silenced meanwhile.
  const tip = document.getElementById("tip");
  let title = null, kept = "";
  const restore = () => { if (title) title.textContent = kept; title = null; tip.hidden = true; };
  document.addEventListener("pointerover", (event) => {
    const part = event.target.closest && event.target.closest(".scroller svg *");
    let found = null;
    for (let at = part; at && !found && !at.classList.contains("scroller"); at = at.parentElement) {
      found = [...at.children].find((child) => child.tagName === "title") || null;
    }
    if (found === title) return;
    restore();
    if (found) { title = found; kept = found.textContent; found.textContent = ""; tip.hidden = false; }
  });
  document.addEventListener("pointermove", (event) => {
    if (!title) return;
    const chart = title.closest(".chart"), svg = chart.querySelector(".scroller > svg");
    const box = svg.getBoundingClientRect(), from = +chart.dataset.from;
    const at = from + (chart.dataset.to - from) * (event.clientX - box.left) / box.width;
    tip.textContent = kept + " — pointer at " + at.toFixed(3) + " ms";
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    const below = event.clientY + 18;
    tip.style.top = (below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
  });
  document.addEventListener("pointerleave", restore);
})();
