import assert from "node:assert/strict"
import { readdirSync, readFileSync } from "node:fs"
import { test } from "node:test"

const css = readFileSync(new URL("../../static/css/tokens.css", import.meta.url), "utf8")
const OKLCH = /oklch\(([\d.]+)% ([\d.]+) ([\d.]+)\)/g

/** The colours without transparency as [light, dark]; one face stands for both. */
function faces() {
  const found = {}
  for (const [, name, value] of css.matchAll(/--([\w-]+):\s*([^;]+);/g)) {
    const colours = [...value.matchAll(OKLCH)].map(([, l, c, h]) => [l / 100, Number(c), Number(h)])
    if (colours.length) found[name] = [colours[0], colours.at(-1)]
  }
  return found
}

const both = faces()
const themes = Object.fromEntries(
  ["light", "dark"].map((theme, face) => [theme, Object.fromEntries(Object.entries(both).map(([name, pair]) => [name, pair[face]]))]),
)

/** oklch → relative luminance (Ottosson's matrices, then WCAG's weights on linear sRGB). */
function luminance([lightness, chroma, hue]) {
  const a = chroma * Math.cos((hue * Math.PI) / 180)
  const b = chroma * Math.sin((hue * Math.PI) / 180)
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((value) => Math.min(1, Math.max(0, value)))
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((x, y) => y - x)
  return (high + 0.05) / (low + 0.05)
}

const SURFACES = ["paper", "paper-raised", "paper-sunken", "tint"]
const TEXT = ["ink", "grey", "ember", "info", "good", "warn", "bad"]

test("the conversion knows black on white", () => {
  assert.ok(Math.abs(contrast([0, 0, 0], [1, 0, 0]) - 21) < 0.01)
})

test("a theme is chosen by the system or by <html data-theme>, and no value stands twice", () => {
  assert.match(css, /:root \{\s*color-scheme: light dark;/)
  for (const theme of ["light", "dark"]) {
    assert.match(css, new RegExp(`:root\\[data-theme="${theme}"\\] \\{\\s*color-scheme: ${theme};\\s*\\}`))
  }
  assert.doesNotMatch(css, /prefers-color-scheme/)
  assert.notDeepEqual(themes.light.paper, themes.dark.paper)
  const names = [...css.matchAll(/--([\w-]+):/g)].map(([, name]) => name)
  assert.equal(new Set(names).size, names.length)
})

test("no component has a theme of its own: what is light or dark is said in one file", () => {
  const folder = new URL("../../static/css/", import.meta.url)
  const own = readdirSync(folder).filter((name) => name.endsWith(".css") && !name.startsWith("admin"))
  for (const name of own) assert.doesNotMatch(readFileSync(new URL(name, folder), "utf8"), /prefers-color-scheme/, name)
})

for (const [theme, colours] of Object.entries(themes)) {
  test(`${theme}: text reads on every surface (4.5 : 1)`, () => {
    for (const surface of SURFACES) {
      for (const text of TEXT) {
        const ratio = contrast(colours[text], colours[surface])
        assert.ok(ratio >= 4.5, `${text} on ${surface}: ${ratio.toFixed(2)}`)
      }
    }
    for (const fill of ["ember-fill", "ember-fill-hover"]) {
      assert.ok(contrast(colours["on-ember"], colours[fill]) >= 4.5, fill)
    }
  })

  test(`${theme}: every colour of code reads where code stands (4.5 : 1)`, () => {
    const names = Object.keys(colours).filter((name) => name.startsWith("code-"))
    assert.equal(names.length, 8)
    for (const name of names) {
      for (const surface of ["paper-sunken", "paper"]) {
        const ratio = contrast(colours[name], colours[surface])
        assert.ok(ratio >= 4.5, `${name} on ${surface}: ${ratio.toFixed(2)}`)
      }
    }
  })

  test(`${theme}: edges of controls are seen (3 : 1)`, () => {
    for (const surface of ["paper", "paper-raised", "paper-sunken"]) {
      for (const edge of ["edge-strong", "ember", "ember-fill"]) {
        const ratio = contrast(colours[edge], colours[surface])
        assert.ok(ratio >= 3, `${edge} on ${surface}: ${ratio.toFixed(2)}`)
      }
    }
  })
}
