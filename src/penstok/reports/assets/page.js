"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value) => {
    if (value == null) return "";
    const units = ["", "K", "M", "G", "T"];
    let power = 0;
    while (Math.abs(value) >= 1000 && power < 4) { value /= 1000; power += 1; }
    return +value.toPrecision(3) + units[power];
  };
  const bytes = (value) => (value == null ? "" : short(value).replace(/([KMGT]?)$/, " $1B").replace("KB", "kB"));
  const plots = [];

  const axis = (more) => ({
    stroke: colour("--soft"), font: "12px system-ui, sans-serif",
    grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 },
    ...more,
  });
  const fill = (name) => colour(name) + "cc";
  const bars = (label, name, value) => ({
    label, stroke: colour(name), fill: fill(name), width: 0, value,
    paths: uPlot.paths.bars({ size: [0.82, 90], radius: 0.12 }), points: { show: false },
  });
  const steps = (values) => (_, splits) => splits.map((at) => (Number.isInteger(at) ? values[at] ?? "" : ""));
  const whole = (most) => (u, _, low, high) => {
    const step = Math.max(1, Math.ceil(most / (u.width / 60)));
    const found = [];
    for (let at = Math.max(0, Math.ceil(low)); at <= Math.min(high, most); at += step) found.push(at);
    return found;
  };
  const named = (label, { names, values }, show, min) => ({
    data: [values.map((_, at) => at), values],
    options: {
      scales: { x: { time: false, range: [-0.6, values.length - 0.4] }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } },
      axes: [
        axis({ size: 30, splits: whole(values.length - 1), values: (_, splits) => splits.map((at) => at + 1), grid: { show: false } }),
        axis({ values: (_, splits) => splits.map(show), size: 58 }),
      ],
      series: [{ label: "input", value: (_, at) => (at == null ? "" : `${at + 1}: ${names[at]}`) }, bars(label, min, (_, value) => show(value))],
    },
  });

  const tens = (_, splits) => splits.map((at) => (Number.isInteger(Math.log10(at)) ? at : null));

  const charts = {
    lengths({ labels, train, val }) {
      const percent = (_, value) => (value == null ? "" : value.toFixed(2) + " %");
      return {
        data: [train.map((_, at) => at), train, val],
        options: {
          scales: { x: { time: false, range: [-0.6, train.length - 0.4] }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } },
          axes: [
            axis({ size: 30, splits: whole(train.length - 1), values: steps(labels), grid: { show: false }, label: "tokens per document, from", labelFont: "12px system-ui, sans-serif", labelSize: 20 }),
            axis({ values: (_, splits) => splits.map((at) => at + " %"), size: 52 }),
          ],
          series: [
            { label: "tokens", value: (_, at) => (at == null ? "" : `${labels[at]} to ${labels[at + 1]}`) },
            bars("train", "--accent", percent),
            { label: "val", stroke: colour("--second"), width: 2, value: percent, points: { show: true, size: 5 } },
          ],
        },
      };
    },
    inputs: (own) => named("tokens", own, short, "--accent"),
    ratios: (own) => named("bytes per token", own, (value) => (value == null ? "" : (+value).toFixed(2)), "--second"),
    ranks({ ranks, counts }) {
      const decades = { filter: tens, grid: { stroke: colour("--line"), width: 1, filter: tens } };
      return {
        data: [ranks, counts],
        options: {
          scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
          axes: [axis({ ...decades, size: 30, values: (_, splits) => splits.map(short) }),
                 axis({ ...decades, values: (_, splits) => splits.map(short), size: 52 })],
          series: [{ label: "rank", value: (_, at) => short(at) },
                   { label: "count", stroke: colour("--accent"), fill: colour("--accent") + "22", width: 2, value: (_, at) => short(at), points: { show: false } }],
        },
      };
    },
    run({ seconds, speed, memory }) {
      return {
        data: [seconds, speed, memory],
        options: {
          scales: { x: { time: false }, y: { range: (_, low, high) => [0, high * 1.1 || 1] }, memory: { range: (_, low, high) => [0, high * 1.1 || 1] } },
          axes: [
            axis({ size: 30, values: (_, splits) => splits.map((at) => at + " s") }),
            axis({ values: (_, splits) => splits.map((at) => bytes(at) + "/s"), size: 74 }),
            axis({ scale: "memory", side: 1, values: (_, splits) => splits.map(bytes), size: 66, grid: { show: false } }),
          ],
          series: [
            { label: "second", value: (_, at) => (at == null ? "" : at.toFixed(1)) },
            { label: "speed", stroke: colour("--accent"), fill: colour("--accent") + "22", width: 2, value: (_, at) => (at == null ? "" : bytes(at) + "/s"), points: { show: false } },
            { label: "memory", scale: "memory", stroke: colour("--second"), width: 2, value: (_, at) => bytes(at), points: { show: false } },
          ],
        },
      };
    },
  };

  const draw = () => {
    for (const plot of plots.splice(0)) plot.destroy();
    for (const place of document.querySelectorAll(".plot")) {
      const made = charts[place.dataset.chart](data[place.dataset.chart]);
      if (!made.data[0].length) { place.hidden = true; continue; }
      const size = { width: place.clientWidth, height: 260 };
      plots.push(new uPlot({ ...made.options, ...size, cursor: { drag: { x: false, y: false } } }, made.data, place));
    }
  };
  const resize = () => {
    for (const plot of plots) {
      const width = plot.root.parentElement.clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: 260 });
    }
  };
  draw();
  addEventListener("resize", resize);
  addEventListener("beforeprint", draw);
  addEventListener("afterprint", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const articles = [...document.querySelectorAll("article")];
  const says = document.querySelector(".reader-controls output");
  if (!articles.length) return;
  const at = { train: 0, val: 0 };
  let split = articles[0].dataset.split;
  const show = () => {
    const own = articles.filter((each) => each.dataset.split === split);
    for (const each of articles) each.hidden = each !== own[at[split]];
    for (const button of document.querySelectorAll("[data-show]")) {
      button.setAttribute("aria-pressed", String(button.dataset.show === split));
    }
    for (const button of document.querySelectorAll("[data-step]")) {
      const next = at[split] + Number(button.dataset.step);
      button.disabled = next < 0 || next >= own.length;
    }
    says.textContent = `${at[split] + 1} of ${own.length}`;
  };
  document.querySelector(".reader-controls").addEventListener("click", ({ target }) => {
    if (target.dataset.show) split = target.dataset.show;
    else if (target.dataset.step) at[split] += Number(target.dataset.step);
    else return;
    show();
  });
  const point = ({ target }) => {
    if (target.tagName !== "I" || !target.closest("article")) return;
    for (const old of document.querySelectorAll("i.on")) old.classList.remove("on");
    target.classList.add("on");
    const ids = target.closest("article").dataset.ids.split(" ");
    let first = 0;
    for (let each = target.previousElementSibling; each; each = each.previousElementSibling) {
      first += Number(each.dataset.n || 1);
    }
    const some = ids.slice(first, first + Number(target.dataset.n || 1));
    says.textContent = `token ${first}: id ${some.join(", ")}`;
  };
  document.querySelector(".reader").addEventListener("mouseover", point);
  document.querySelector(".reader").addEventListener("click", point);
  show();
})();
