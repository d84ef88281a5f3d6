// What unfold writes into attributes as code, as components with names: our content policy allows
// no script to be made of text, so Alpine is its CSP build (docs/admin.md).
document.addEventListener("alpine:init", () => {
  const { Alpine } = window;
  Alpine.data("theme", () => window.theme("auto"));
  Alpine.data("searchForm", window.searchForm);

  const SIDEBAR = "sidebarDesktopOpen";
  Alpine.data("page", () => ({
    activeTab: document.body.dataset.activeTab,
    sidebarMobileOpen: false,
    // unfold's change form asks for these two; the CSP build has no globals.
    window: { location: { pathname: location.pathname, search: location.search } },
    sidebarDesktopOpen: localStorage.getItem(SIDEBAR) !== "0",
    init() {
      this.activeTab = window.getCurrentTab() || this.activeTab;
      this.$watch(SIDEBAR, (open) => localStorage.setItem(SIDEBAR, open ? "1" : "0"));
    },
  }));
});
