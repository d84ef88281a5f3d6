/**
 * HTML made from a model's text → nodes that can do nothing.
 *
 * DOMPurify's own Trusted Types policy is the only one the page's CSP allows, and it gives back nodes, so no
 * other code can turn text into HTML. Allowed is what Markdown makes, and nothing more: no style, no
 * class but a code block's language, and no link to this site, on which it might act for its reader.
 */
import DOMPurify from "dompurify"

const CONFIG = {
  ALLOWED_TAGS: [
    ..."p br hr strong em del code pre blockquote ul ol li a".split(" "),
    ..."h3 h4 h5 h6 table thead tbody tr th td".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "class", "start", "align"],
  // DOMPurify holds every other value against the address rule below.
  ADD_URI_SAFE_ATTR: ["start", "align", "title", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
}

const LANGUAGE = /^language-[\w+#.-]{1,40}$/

/** @returns {DocumentFragment} */
export function sanitise(html) {
  const fragment = DOMPurify.sanitize(html, CONFIG)
  for (const element of fragment.querySelectorAll("[class]")) keepKnownClass(element)
  for (const link of fragment.querySelectorAll("a")) makeOutward(link)
  return fragment
}

function keepKnownClass(element) {
  const known = element.tagName === "CODE" ? LANGUAGE.test(element.className) : element.className === "plain"
  if (!known) element.removeAttribute("class")
}

function makeOutward(link) {
  // Asked as the browser resolves it: `http:/path` is this site's, though it looks like another's.
  if (link.host === location.host) link.removeAttribute("href")
  if (!link.hasAttribute("href")) return
  link.setAttribute("target", "_blank")
  link.setAttribute("rel", "noopener noreferrer nofollow")
}
