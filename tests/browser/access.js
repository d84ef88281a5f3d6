// What tests/browser/access.py asks of a page: one object, evaluated in it.
({
  /** What reaches out of its place at the window's width now. */
  layout() {
    const wrong = []
    const root = document.documentElement
    for (const one of [root, document.body, ...document.querySelectorAll("main, aside, nav, #scroller, dialog")]) {
      if (one.checkVisibility() && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline") {
        wrong.push(`wider than its place: ${one.id || one.tagName} (${one.scrollWidth} in ${one.clientWidth})`)
      }
    }
    const shown = {contentVisibilityAuto: true, visibilityProperty: true}
    for (const one of document.querySelectorAll("a[href], button, input, select, textarea, summary")) {
      if (one.type === "hidden" || !one.checkVisibility(shown) || one.matches(".skip-link")) continue
      if (one.closest("pre, table, .visually-hidden, .scrolls")) continue
      const {left, right, width} = one.getBoundingClientRect()
      if (width && (left < -1 || right > innerWidth + 1)) {
        const name = one.id || one.className || one.textContent.trim().slice(0, 40)
        wrong.push(`outside the window: ${one.tagName} ${name} (${Math.round(left)} to ${Math.round(right)})`)
      }
    }
    if (document.querySelectorAll("h1").length !== 1) wrong.push(`${document.querySelectorAll("h1").length} h1`)
    return wrong
  },
  /** Where the keyboard can go, and how each of these looks while it is not there. */
  stops() {
    document.activeElement?.blur()
    const shown = {visibilityProperty: true}
    const every = "a[href], button, input, select, textarea, summary, iframe, [tabindex], [contenteditable]"
    const groups = new Set()
    window.__look = (one) => {
      const parts = [one, one.closest("label, .field, li"), one.closest("form")].filter(Boolean)
      return parts.map((part) => {
        const {outlineStyle, outlineWidth, outlineColor, boxShadow, borderColor, backgroundColor} = getComputedStyle(part)
        const outline = outlineStyle === "none" ? "" : `${outlineStyle} ${outlineWidth} ${outlineColor}`
        return [outline, boxShadow, borderColor, part === one ? backgroundColor : ""].join("|")
      }).join("/")
    }
    window.__name = (one) =>
      `${one.tagName.toLowerCase()} ${one.id || one.className || ""} “${(one.ariaLabel || one.textContent).trim().slice(0, 40)}”`
    window.__stops = [...document.querySelectorAll(every)].filter((one) => {
      if (one.tabIndex < 0 || one.disabled || one.type === "hidden") return false
      if (!one.checkVisibility(shown) || one.closest("[inert]")) return false
      if (one.type !== "radio") return true
      const chosen = one.form?.querySelector(`[name="${one.name}"]:checked`)
      if (chosen ? chosen !== one : groups.has(one.name)) return false
      return groups.add(one.name)
    })
    const modal = document.querySelector("dialog:modal")
    if (modal) window.__stops = window.__stops.filter((one) => modal.contains(one))
    window.__looks = window.__stops.map(window.__look)
    return window.__stops.length
  },
  /** Where the keyboard is now. */
  stop() {
    const one = document.activeElement
    if (!one || one === document.body) return null
    const at = window.__stops.indexOf(one)
    const name = window.__name(one)
    const box = one.getBoundingClientRect()
    const wrong = []
    if (at >= 0 && window.__look(one) === window.__looks[at]) wrong.push(`no visible focus on ${name}`)
    if (at < 0 && getComputedStyle(one).outlineStyle === "none") wrong.push(`no visible focus on ${name}`)
    const spots = [[0.5, 0.5], [0.1, 0.5], [0.9, 0.5], [0.5, 0.1], [0.5, 0.9]]
    const seen = spots.some(([x, y]) => {
      const top = document.elementFromPoint(box.left + x * box.width, box.top + y * box.height)
      return top && (one.contains(top) || top.contains(one))
    })
    if (!seen) wrong.push(`the focus is under something: ${name}`)
    return {at, wrong}
  },
})
