// The theme of the admin, before the first paint; unfold keeps the choice under this name.
(() => {
  const chosen = localStorage.getItem("_x_adminTheme") ?? '"auto"';
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (chosen === '"dark"' || (chosen === '"auto"' && dark)) {
    document.documentElement.classList.add("dark");
  }
})();
