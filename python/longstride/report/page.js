"use strict";
// Draws the charts of the page from the JSON in it, in the colours of the theme and over the chosen x axis.
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const root = document.documentElement;
  const narrow = matchMedia("(max-width: 520px)");
  const coarse = matchMedia("(pointer: coarse)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let over = "step";
  const logged = new Set(report.charts.filter((chart) => chart.logged).map((chart) => chart.id));

  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const faded = (hex, alpha) =>
    `rgba(${[1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)).join(",")},${alpha})`;

  // "@blue" and "@blue:0.5" stand for colours of the theme.
  function themed(value) {
    if (typeof value === "string" && value.startsWith("@")) {
      const [name, alpha] = value.slice(1).split(":");
      return alpha ? faded(colour(name), alpha) : colour(name);
    }
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner)]));
    return value;
  }

  function traceOf(source) {
    const { xs, scale, caption, ...rest } = source;
    // Text may begin with "@" too: only what is drawn in colours is looked up.
    const trace = { ...rest };
    for (const key of ["line", "marker", "fillcolor"]) if (key in trace) trace[key] = themed(trace[key]);
    if (xs) trace.x = xs[over];
    if (scale === "found") {
      trace.colorscale = [[0, colour("low")], [1, colour("good")]];
      trace.colorbar = { ...trace.colorbar, tickfont: { color: colour("soft") } };
    }
    return trace;
  }

  function axis(options = {}) {
    const { title, reversed, ...rest } = options;
    const result = {
      automargin: true, gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false, ticks: "", fixedrange: coarse.matches,
      tickfont: { color: colour("soft"), size: narrow.matches ? 11 : 12 }, ...rest,
    };
    if (title) result.title = { text: title, font: { color: colour("soft"), size: 12 }, standoff: 8 };
    if (reversed) result.autorange = "reversed";
    return result;
  }

  function heightOf(chart) {
    if (chart.bars) return 64 + 42 * chart.rows;
    if (chart.rows) return Math.min(560, 110 + Math.max(150, 30 * chart.rows));
    return narrow.matches ? 230 : chart.wide ? 330 : 250;
  }

  function layoutOf(chart) {
    const x = axis(chart.course ? { title: report.axes[over] } : chart.x);
    if (chart.course) {
      x.showgrid = false;
      x.tickformat = over === "step" ? ",~d" : over === "tokens" ? "~s" : "";
      if (over !== "time") x.rangemode = "tozero";
      const titles = { step: "step %{x:,d}", tokens: "%{x:.4~s} tokens", time: `%{x:.4~g} ${report.unit}` };
      x.unifiedhovertitle = { text: `<b>${titles[over]}</b>` };
    } else if (chart.x && chart.x.type === "log") {
      x.tickvals = chart.x.tickvals;
      x.showgrid = false;
    }
    if (chart.bars) { x.showgrid = true; x.rangemode = "tozero"; }
    const y = axis(chart.y);
    if (chart.bars || (chart.y && chart.y.type === "category")) y.showgrid = false;
    if (chart.x && chart.x.type === "category") x.showgrid = false;
    if (logged.has(chart.id)) { y.type = "log"; y.dtick = "D2"; delete y.rangemode; }
    const family = getComputedStyle(document.body).fontFamily;
    const shapes = [];
    for (const mark of chart.marks || [])
      for (const at of mark[over])
        shapes.push({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: themed(mark.color), width: 1, dash: "dot" } });
    if (chart.level)
      shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: chart.level, y1: chart.level, line: { color: colour("rose"), width: 1, dash: "dash" } });
    return {
      height: heightOf(chart), margin: { l: 8, r: 10, t: 10, b: 8 }, shapes, barmode: "stack", bargap: 0.35,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family, color: colour("ink"), size: 12 },
      xaxis: x, yaxis: y, yaxis2: { overlaying: "y", range: [-0.03, 1], visible: false, fixedrange: true },
      hovermode: chart.hovermode || "x unified", dragmode: coarse.matches ? false : "zoom",
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { family, color: colour("ink"), size: 12 }, namelength: 40, align: "left" },
      showlegend: false,
    };
  }

  const settings = { responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset+autosize" };

  function draw(chart) {
    const place = document.getElementById("plot-" + chart.id);
    return Plotly.react(place, chart.traces.map(traceOf), layoutOf(chart), settings).then(() => {
      place.dataset.drawn = over;
    });
  }

  // A legend of buttons above the plot: it takes no room from the plot, and wraps. A button hides its group of traces.
  function legend(chart) {
    const named = chart.traces.filter((trace) => trace.name && trace.showlegend !== false);
    const place = document.querySelector(`[data-legend="${chart.id}"]`);
    if (named.length < 2 && report.runs === 1) return;
    for (const trace of named) {
      const button = document.createElement("button");
      const sign = document.createElement("i");
      const look = trace.line || trace.marker;
      sign.style.setProperty("--sign", `var(--${look.color.slice(1)})`);
      sign.style.opacity = trace.opacity || 1;
      sign.className = trace.stackgroup || trace.type === "bar" ? "area" : look.dash && look.dash !== "solid" ? "dots" : "";
      const name = document.createElement("span");
      name.innerHTML = trace.caption || trace.name;  // escaped by the report
      button.append(sign, name);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        for (const other of chart.traces)
          if (other === trace || (trace.legendgroup && other.legendgroup === trace.legendgroup)) other.visible = shown;
        draw(chart);
      });
      place.append(button);
    }
  }
  function drawAll() {
    return Promise.all(report.charts.map(draw)).then(() => { root.dataset.drawn = "all"; });
  }

  function press(buttons, chosen) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
  }
  const units = [...document.querySelectorAll("[data-over]")];
  for (const button of units)
    button.addEventListener("click", () => {
      over = button.dataset.over;
      press(units, button);
      drawAll();
    });
  for (const button of document.querySelectorAll("[data-log]")) {
    const id = button.dataset.log;
    button.setAttribute("aria-pressed", String(logged.has(id)));
    button.addEventListener("click", () => {
      if (!logged.delete(id)) logged.add(id);
      button.setAttribute("aria-pressed", String(logged.has(id)));
      draw(report.charts.find((chart) => chart.id === id));
    });
  }
  const theme = document.querySelector(".theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
    drawAll();
  });
  dark.addEventListener("change", () => { nameTheme(); drawAll(); });
  narrow.addEventListener("change", drawAll);
  nameTheme();
  report.charts.forEach(legend);
  drawAll();
})();
