// The offline page stands in the place of the page that was asked for: once there is a network, ask again.
addEventListener("online", () => location.reload())
