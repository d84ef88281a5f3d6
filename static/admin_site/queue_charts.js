// Small charts of the last hour, drawn as SVG. No inline style: colours are the stylesheet's.

const SVG = "http://www.w3.org/2000/svg"
const WIDTH = 240
const HEIGHT = 56
const HOUR_S = 3_600

/** Makes the charts of one pool; `parts` is queue_parts.js. */
export function charts(parts) {
  const line = (name, words, points, format) => ({ name, words, lines: [{ words, points }], format })

  /** What each chart shows: name, heading, lines, and the words for a value. */
  function specs(history, titles) {
    const plans = Object.entries(history.wait_s)
    return [
      line("waiting", "Runs waiting", history.waiting, parts.amount),
      {
        name: "wait",
        words: "A newcomer waits",
        lines: plans.map(([plan, points]) => ({ words: titles.get(plan) ?? plan, points })),
        format: (seconds) => parts.duration(seconds === null ? null : seconds * 1_000),
      },
      {
        name: "work",
        words: "At work, of all slots",
        lines: [
          { words: "at work", points: history.at_work },
          { words: "slots", points: history.slots },
        ],
        format: parts.amount,
      },
      line("speed", "Tokens a second", history.tokens_per_s, parts.amount),
      line("refused", "Refused a minute", history.refused_per_min, parts.amount),
    ]
  }

  function draw(box, history, titles, now) {
    const shown = specs(history, titles)
    box.replaceChildren(...shown.map((spec) => figure(spec, now)), table(shown))
  }

  function figure({ name, words, lines, format }, now) {
    const { most, top } = parts.scale(lines.map((one) => one.points))
    // Not "chart": unfold draws on what it finds by that name, whenever its script comes to run.
    const figure = element("figure", { class: `hour-chart chart-${name}` })
    const current = lines.map((one) => format(parts.newest(one.points)))
    const heading = element("figcaption", {}, element("span", {}, words))
    if (lines.length === 1) heading.append(element("strong", {}, current[0]))
    const label = `${words} in the last hour: at most ${format(most)}. Now: ${lines
      .map((one, at) => (lines.length > 1 ? `${one.words} ${current[at]}` : current[at]))
      .join(", ")}.`
    const svg = vector("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 2}`, role: "img", "aria-label": label })
    svg.append(vector("path", { class: "chart-ground", d: `M0 ${HEIGHT}H${WIDTH}M0 0H${WIDTH}` }))
    const size = { since: now - HOUR_S, until: now, top, width: WIDTH, height: HEIGHT }
    lines.forEach((one, at) => {
      svg.append(vector("path", { class: `chart-line series-${at % 6}`, d: parts.path(one.points, size) }))
    })
    figure.append(heading, svg, element("p", { class: "chart-scale", "aria-hidden": "true" }, `the last hour, 0 to ${format(top)}`))
    if (lines.length > 1) figure.append(legend(lines, current))
    return figure
  }

  function legend(lines, current) {
    return element(
      "ul",
      { class: "chart-legend" },
      ...lines.map((one, at) => element("li", { class: `series-${at % 6}` }, `${one.words}: ${current[at]}`)),
    )
  }

  function table(shown) {
    const columns = shown.flatMap(({ words, lines, format }) =>
      lines.map((one) => ({ words: lines.length > 1 ? `${words}: ${one.words}` : words, points: one.points, format })),
    )
    const head = ["From (UTC)", ...columns.map((column) => column.words)]
    const body = parts.rows(columns.map((column) => column.points))
    return element(
      "details",
      { class: "chart-table" },
      element("summary", {}, "The hour as a table"),
      element("p", {}, "The highest value of each five minutes."),
      element(
        "div",
        { class: "wide", tabindex: "0", role: "region", "aria-label": "The last hour" },
        element(
          "table",
          {},
          element("thead", {}, element("tr", {}, ...head.map((words) => element("th", { scope: "col" }, words)))),
          element("tbody", {}, ...body.map(([time, ...values]) => row(time, values, columns))),
        ),
      ),
    )
  }

  function row(time, values, columns) {
    const when = new Date(time * 1_000).toISOString().slice(11, 16)
    const cells = values.map((value, at) => element("td", {}, value === null ? "–" : columns[at].format(value)))
    return element("tr", {}, element("th", { scope: "row" }, when), ...cells)
  }

  return { draw }
}

function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children)
}

function vector(name, attributes) {
  return filled(document.createElementNS(SVG, name), attributes, [])
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value)
  node.append(...children)
  return node
}
