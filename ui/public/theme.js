// The stored choice wins over the system's; without one, CSS follows `prefers-color-scheme`.
(function () {
  try {
    var theme = localStorage.getItem("corral.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is disabled in this browser: the theme follows the system.
  }
})();
