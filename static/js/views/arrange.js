/** The children of `parent` become `wanted`; those that stay where they are are not touched. */
export function arrange(parent, wanted) {
  const kept = new Set(wanted)
  for (const child of [...parent.childNodes]) if (!kept.has(child)) child.remove()
  let at = parent.firstChild
  for (const child of wanted) {
    if (child === at) at = at.nextSibling
    else parent.insertBefore(child, at)
  }
}
