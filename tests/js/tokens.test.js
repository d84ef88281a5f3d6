import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"

const css = readFileSync(new URL("../../static/css/tokens.css", import.meta.url), "utf8")
const [lightCss, darkCss] = css.split("@media")

function tokens(text) {
  const found = text.matchAll(/--([\w-]+):\s*oklch\(([\d.]+)% ([\d.]+) ([\d.]+)\)/g)
  return Object.fromEntries([...found].map(([, name, l, c, h]) => [name, [l / 100, Number(c), Number(h)]]))
}

const light = tokens(lightCss)
const themes = { light, dark: { ...light, ...tokens(darkCss) } }

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

  test(`${theme}: edges of controls are seen (3 : 1)`, () => {
    for (const surface of ["paper", "paper-raised", "paper-sunken"]) {
      for (const edge of ["edge-strong", "ember", "ember-fill"]) {
        const ratio = contrast(colours[edge], colours[surface])
        assert.ok(ratio >= 3, `${edge} on ${surface}: ${ratio.toFixed(2)}`)
      }
    }
  })
}
