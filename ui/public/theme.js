// The stored choice wins over the system's; without one, CSS follows `prefers-color-scheme`.
(function () {
  try {
    var theme = localStorage.getItem("corral.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is switched off in this browser: the system's theme it is.
  }
})();
