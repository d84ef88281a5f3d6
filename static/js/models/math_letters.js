/**
 * Letters of a kind (double-struck, script, …) as Unicode has them: browsers know no `mathvariant` but "normal",
 * and ℝ would be R.
 */

// variant: first capital, first small letter, first digit, first Greek capital and small letter; 0: none
const FIRST = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce, 0x1d6a8, 0x1d6c2],
  "bold-italic": [0x1d468, 0x1d482, 0x1d7ce, 0x1d71c, 0x1d736],
  script: [0x1d49c, 0x1d4b6, 0, 0, 0],
  "bold-script": [0x1d4d0, 0x1d4ea, 0, 0, 0],
  fraktur: [0x1d504, 0x1d51e, 0, 0, 0],
  "bold-fraktur": [0x1d56c, 0x1d586, 0, 0, 0],
  "double-struck": [0x1d538, 0x1d552, 0x1d7d8, 0, 0],
  "sans-serif": [0x1d5a0, 0x1d5ba, 0x1d7e2, 0, 0],
  "bold-sans-serif": [0x1d5d4, 0x1d5ee, 0x1d7ec, 0x1d756, 0x1d770],
  "sans-serif-italic": [0x1d608, 0x1d622, 0x1d7e2, 0, 0],
  "sans-serif-bold-italic": [0x1d63c, 0x1d656, 0x1d7ec, 0x1d790, 0x1d7aa],
  monospace: [0x1d670, 0x1d68a, 0x1d7f6, 0, 0],
}
// Those that Unicode had before it had the rest.
const OLDER = {
  script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  fraktur: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
  "double-struck": { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
}
const RANGES = [["A", "Z"], ["a", "z"], ["0", "9"], ["Α", "Ω"], ["α", "ω"]]

/** `text` in the letters of `variant`; as it is where there are none. */
export function inLettersOf(variant, text) {
  const first = FIRST[variant]
  return first ? [...text].map((letter) => OLDER[variant]?.[letter] ?? shifted(letter, first)).join("") : text
}

function shifted(letter, first) {
  const range = RANGES.findIndex(([from, to]) => letter >= from && letter <= to)
  return range < 0 || !first[range] ? letter : String.fromCodePoint(first[range] + letter.codePointAt(0) - RANGES[range][0].codePointAt(0))
}
