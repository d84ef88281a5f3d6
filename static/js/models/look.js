/** The colour of the browser's own bar, as templates/base.html has it. */
const BAR = { light: "#faf7f3", dark: "#1b1511" }

/**
 * @param {"system"|"light"|"dark"} theme
 * @returns {{content: string, media: string|null}[]} what the page's `theme-color` says, one after another
 */
export function barColours(theme) {
  if (theme !== "system") return [{ content: BAR[theme], media: null }]
  return Object.entries(BAR).map(([scheme, content]) => ({ content, media: `(prefers-color-scheme: ${scheme})` }))
}
