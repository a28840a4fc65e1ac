// Requests the data of every page while its code is still loading; src/api/early.ts uses the responses.
// Only when a user is signed in, which is all that this cookie shows.
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
    answer.catch(function () {}); // the code that uses the response handles the error
    window.corralEarly[path] = answer;
  });
})();
