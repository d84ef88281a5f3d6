/** The one place where text becomes HTML that shows it as it is; fit for content and quoted attributes. */
export function escapeHtml(text) {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}
