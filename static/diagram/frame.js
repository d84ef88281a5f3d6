/**
 * Draws one Mermaid text, in a frame of an opaque origin: no cookies, no storage, no way into the page around it,
 * and by its own policy no network. It is given a port with the text, and answers there.
 */
"use strict"

const TEXT_MAX = 20000
const ERROR_MAX = 300

let port = null
let text = ""
let drawn = Promise.resolve()

addEventListener("message", (event) => {
  if (event.source !== parent || port || !event.ports[0]) return
  port = event.ports[0]
  text = String(event.data.text).slice(0, TEXT_MAX)
  // Other colours: the same drawing again, when the one before it is ready.
  port.onmessage = ({ data }) => drawWith(data)
  drawWith(event.data)
})

function drawWith(colours) {
  drawn = drawn.then(() => draw(colours)).catch((error) => port.postMessage({ error: String(error && error.message ? error.message : error).slice(0, ERROR_MAX) }))
}

async function draw({ colours, dark }) {
  // A frame of another scheme than the page's would have a ground of its own.
  document.documentElement.style.colorScheme = dark ? "dark" : "light"
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    suppressErrorRendering: true,
    htmlLabels: false,
    maxTextSize: TEXT_MAX,
    maxEdges: 300,
    theme: "base",
    darkMode: dark,
    fontFamily: "system-ui, sans-serif",
    themeVariables: themeOf(colours, dark),
    // What the text itself may not set.
    secure: ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "htmlLabels", "theme", "themeCSS", "themeVariables", "fontFamily", "darkMode", "dompurifyConfig"],
  })
  const { svg } = await mermaid.render("diagram", text)
  const drawing = document.getElementById("drawing")
  drawing.innerHTML = svg
  for (const link of drawing.querySelectorAll("a")) link.replaceWith(groupOf(link))
  const shape = drawing.firstElementChild
  shape.removeAttribute("height")
  const { width, height } = shape.viewBox.baseVal
  port.postMessage({ width, height })
}

/** What a link holds, where it stands, leading nowhere. */
function groupOf(link) {
  const group = document.createElementNS("http://www.w3.org/2000/svg", "g")
  for (const name of ["class", "id", "transform"]) if (link.hasAttribute(name)) group.setAttribute(name, link.getAttribute(name))
  group.append(...link.childNodes)
  return group
}

function themeOf({ paper, raised, tint, ink, grey, edge, ember }, darkMode) {
  return {
    darkMode,
    background: paper,
    primaryColor: tint,
    primaryTextColor: ink,
    primaryBorderColor: ember,
    secondaryColor: raised,
    tertiaryColor: raised,
    lineColor: grey,
    textColor: ink,
    titleColor: ink,
    noteBkgColor: raised,
    noteTextColor: ink,
    noteBorderColor: edge,
    edgeLabelBackground: paper,
    clusterBkg: raised,
    clusterBorder: edge,
    fontSize: "15px",
  }
}

parent.postMessage("ready", "*")
