// What every page shows is asked for while the page's own code is still on its way; src/api/early.ts takes the answers.
// Only where somebody is signed in, which is all that this cookie tells.
(function () {
  if (!/(^|; )corral_signed_in=/.test(document.cookie)) return;
  window.corralEarly = {};
  ["api/session", "api/nodes", "api/operations"].forEach(function (path) {
    var answer = fetch(path, {
      headers: { Accept: "application/json" },
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.timeout(20000),
    });
    answer.catch(function () {}); // whoever takes it hears of it
    window.corralEarly[path] = answer;
  });
})();
